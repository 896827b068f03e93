// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of this node.

use super::{
    cq_watchdog::CqWatchdog,
    deferred::{DeferredCmId, DeferredDestroy},
    endpoint::{EndpointShared, IbEndpoint},
    endpoint_list::{EndpointList, Hold},
    mr_pool::MrPool,
    private::socket_addr,
    qp_context::{NextCheck, QpContext},
    IbTunables,
};
use crate::cm::laddr::{DeviceAddrs, LocalAddrs};
use crate::conn::{
    ConnKey, Connection, Endpoint, Mapped, MrDevice, OnRelease, OpKind, RemoteMemory, Transport,
};
use crate::kapi::{
    errno::Errno,
    net::{IpBits, Net},
    pin::PinnedMemory,
    rdma::{
        Access, Client, ClientCell, Device as RdmaDevice, DeviceCaps, DeviceId, IncomingRequest,
        Pd, Qp,
    },
    shrinker::Shrinker,
    sync::{cancel_delayed, new_spinlock_bh, OwnedQueue, Section, SpinLockBh},
    task::without_io,
    time,
};
use crate::proto::{keepalive::time_for_operations, wire::FragmentSize};
use crate::recv_pool::{Holdings, Limits, Pools, Unmapped};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
    },
    workqueue::{DelayedWork, WorkItem},
};

/// How often the receive rings of a device are looked at, if any is deep, in milliseconds.
const PERIOD_MS: u32 = 2000;
/// How often an endpoint is looked after that cannot wait for that.
const SOON_MS: u32 = 20;
/// At the most so often a connection is given up for the memory that it keeps or needs.
const GIVE_UP_MS: u32 = 1000;

/// A device that connections can use.
#[pin_data]
pub(crate) struct Device {
    pub(super) id: DeviceId,
    pub(super) pd: Arc<Pd>,
    pub(super) pools: Arc<Pools>,
    _shrinker: Shrinker<Pools>,
    pub(super) caps: DeviceCaps,
    users: Arc<EndpointList>,
    watch: Arc<CqWatchdog>,
    pub(super) regions: Arc<MrPool>,
    queue: Arc<OwnedQueue>,
    parking: Arc<DeferredDestroy>,
    /// Looks after the receive rings.
    #[pin]
    service_ring: DelayedWork<Device, 0>,
    /// It is going to.
    tending: Atomic<bool>,
    /// It is going to in a moment.
    soon: Atomic<bool>,
    /// When the current period ends, in nanoseconds.
    period_end: Atomic<u64>,
    /// Until then no connection may be given up, in nanoseconds.
    spared_until: Atomic<u64>,
    /// What a port took in a second when the last queue pair was made, in megabits; 0 if nobody
    /// knows.
    mbits: Atomic<u32>,
}

/// `delay_ms` after `now`, which is in nanoseconds.
fn later(now: u64, delay_ms: u32) -> u64 {
    now.saturating_add(u64::from(delay_ms).saturating_mul(1_000_000))
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Device { self.service_ring }
}

impl WorkItem<0> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let _: usize = this.service_ring();
        });
    }
}

impl Device {
    fn new(
        device: &RdmaDevice,
        unmapped: &Arc<Pools>,
        limits: &Limits,
        tunables: &Arc<IbTunables>,
        parking: &Arc<DeferredDestroy>,
    ) -> Result<Arc<Self>> {
        let pd = Pd::new(device)?;
        let users = EndpointList::new(device.id())?;
        let pools = Pools::new(&pd, unmapped.clone(), limits)?;
        let regions = MrPool::new(&pd, &users, tunables, &limits.queue)?;
        Arc::pin_init(
            try_pin_init!(Self {
                id: device.id(),
                pd,
                _shrinker: Shrinker::new(pools.clone())?,
                pools,
                caps: device.caps(),
                watch: CqWatchdog::new(&users, &regions, tunables, &limits.queue)?,
                regions,
                users,
                queue: limits.queue.clone(),
                parking: parking.clone(),
                service_ring <- kernel::new_delayed_work!("Device::service_ring"),
                tending: Atomic::new(false),
                soon: Atomic::new(false),
                period_end: Atomic::new(0),
                spared_until: Atomic::new(0),
                mbits: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    fn is(&self, device: &RdmaDevice) -> bool {
        core::ptr::eq(self.pd.device(), device)
    }

    /// Ends all use of the device, and waits until there is none. Sleeps.
    fn close(self: &Arc<Self>) {
        self.users.close();
        self.regions.close();
        // Without users there is no one who would arm these again.
        self.watch.end();
        cancel_delayed::<_, 0>(self);
    }

    /// Whether peers may use memory of programs by way of it. Any context but a hard interrupt.
    pub(super) fn offers_memory(&self) -> bool {
        self.regions.offer_memory()
    }

    /// The time for which a peer may be at operations on that memory, in nanoseconds. Any context
    /// but a hard interrupt.
    pub(super) fn time_for_operations(&self) -> u64 {
        time_for_operations(self.mbits.load(Relaxed), self.users.len())
    }

    /// Something that was posted is sent, or a queue pair has gone. Any context.
    #[inline]
    pub(super) fn note_progress(&self) {
        self.regions.note_progress();
    }

    /// Has the receive rings looked at when the period ends. Any context.
    pub(super) fn tend_later(self: &Arc<Self>) {
        if !self.tending.load(Relaxed) && !self.tending.xchg(true, Full) {
            // Someone may have asked for less meanwhile.
            self.queue.arm_unless_set::<_, 0>(self.clone(), PERIOD_MS);
        }
    }

    /// Has them looked at after `delay_ms`, even if that is before the end of the period. Any context.
    fn tend_in(self: &Arc<Self>, delay_ms: u32) {
        self.tending.store(true, Relaxed);
        self.queue.arm::<_, 0>(self.clone(), delay_ms);
    }

    /// Has them looked at in a moment. Any context.
    pub(super) fn tend_soon(self: &Arc<Self>) {
        // Who asks again and again does not put it off.
        if !self.soon.xchg(true, Full) {
            self.tend_in(SOON_MS);
        }
    }

    /// Has them looked at at once. Any context.
    pub(super) fn tend_now(self: &Arc<Self>) {
        self.tend_in(0);
    }

    /// Whether a connection may be given up for the memory that it keeps or needs: one at a time, as the others
    /// can do with what it had. Only from `service_ring`.
    pub(super) fn may_give_up_one(&self) -> bool {
        let now = time::monotonic_ns();
        let may = now >= self.spared_until.load(Relaxed);
        if may {
            self.spared_until.store(later(now, GIVE_UP_MS), Relaxed);
        }
        may
    }

    /// Looks after the receive rings of the endpoints that ask for it, and of all of them when a period ends, and after
    /// what is parked. Returns how many endpoints that were. Sleeps.
    pub(super) fn service_ring(self: &Arc<Self>) -> usize {
        self.tending.store(false, Relaxed);
        self.soon.store(false, Relaxed);
        let now = time::monotonic_ns();
        let period_ends = now >= self.period_end.load(Relaxed);
        if period_ends {
            self.period_end.store(later(now, PERIOD_MS), Relaxed);
        }
        // Those that are passed over may have something to do then.
        let mut next = match period_ends || self.users.is_empty() {
            true => NextCheck::Done,
            false => NextCheck::AtNextPeriod,
        };
        let mut tended = 0usize;
        self.users.for_each(
            |_, user| {
                let qp = user.qp.as_ref();
                qp.filter(|qp| period_ends || qp.handler().asks()).cloned()
            },
            |qp| {
                tended = tended.saturating_add(1);
                next = next.max(QpContext::service_ring(&qp, period_ends));
            },
        );
        if self.parking.sweep(self.id) {
            next = next.max(NextCheck::AtNextPeriod);
        }
        match next {
            NextCheck::Done => {}
            NextCheck::AtNextPeriod => self.tend_later(),
            NextCheck::Soon => self.tend_soon(),
        }
        tended
    }
}

/// The use of a device by an endpoint.
pub(super) struct DeviceUse {
    pub(super) device: Arc<Device>,
    /// Among its users.
    number: u64,
}

impl DeviceUse {
    /// Notes the endpoint's queue pair, and the rate of the port. Sleeps.
    pub(super) fn set_qp(&self, qp: &Arc<Qp<QpContext>>) {
        self.device.users.set_qp(self.number, qp);
        let mbits = self.device.pd.device().port_mbits();
        self.device.mbits.store(mbits, Relaxed);
        self.device.watch.begin();
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.device.users.leave(self.number);
        self.device.note_progress();
    }
}

/// The transport: the devices that it can use.
#[pin_data]
pub(crate) struct Ib {
    addrs: Arc<LocalAddrs>,
    #[pin]
    devices: SpinLockBh<KVec<Arc<Device>>>,
    limits: Limits,
    /// The fragments that peers are asked for.
    pub(super) fragment: FragmentSize,
    pub(super) tunables: Arc<IbTunables>,
    /// The memory of messages that wait while no device has their address.
    unmapped: Unmapped,
    _shrinker: Shrinker<Pools>,
    pub(super) parking: Arc<DeferredDestroy>,
}

impl Ib {
    /// Without devices; they come when the client is registered. May sleep.
    pub(crate) fn new(
        addrs: Arc<LocalAddrs>,
        limits: Limits,
        fragment: FragmentSize,
        tunables: Arc<IbTunables>,
    ) -> Result<Arc<Self>> {
        let unmapped = Unmapped::new(&limits)?;
        Arc::pin_init(
            try_pin_init!(Self {
                addrs,
                devices <- new_spinlock_bh!(KVec::new(), "Ib::devices"),
                limits,
                fragment,
                tunables,
                _shrinker: Shrinker::new(unmapped.pools().clone())?,
                unmapped,
                parking: DeferredDestroy::new()?,
            }),
            GFP_KERNEL,
        )
    }

    fn find(&self, device: &RdmaDevice) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        devices.iter().find(|known| known.is(device)).cloned()
    }

    /// Ends all use of a device at which no socket can be bound any more. Sleeps.
    fn end(&self, rdma: &RdmaDevice, device: &Arc<Device>) {
        self.forget(device);
        // A request that waits for its worker goes, too: the CM gives up what an identifier has of the
        // device a moment after it says that the identifier is gone, and that may be too late for the
        // device.
        device.close();
        // Nor may an identifier be left that had no device yet when somebody began with it.
        self.addrs.sections().settle();
        // Nobody else destroys these any more: who does it uses the device, or has looked after it.
        self.parking.clear(device.id);
        // `close` has waited for all queue pairs.
        if let Err(error) = device.pd.release_kept() {
            rdma.with_name(|name| pr_err!("{}: removed with queue pairs: {:?}\n", name, error));
        }
        if let Err(error) = device.pools.revoke() {
            // `close` has waited for all queue pairs, so this is a defect.
            rdma.with_name(|name| {
                pr_err!(
                    "{}: removed with buffers that are still mapped for it: {:?}\n",
                    name,
                    error
                )
            });
        }
    }

    /// Takes a device off the list.
    fn forget(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        let at = devices.iter().position(|known| Arc::ptr_eq(known, device));
        let gone = at.and_then(|at| devices.remove(at).ok());
        drop(devices);
        drop(gone);
    }

    /// Keeps a request until its network device is up, and rejects it then. False if it was rejected at once: there is
    /// no memory, there are too many, or the device goes. May sleep.
    pub(crate) fn park(&self, request: IncomingRequest) -> bool {
        let Some(rdma) = request.device() else {
            return false;
        };
        let Ok(request) = DeferredCmId::request(rdma.id(), request) else {
            return false;
        };
        let devices = self.devices.lock();
        // Nobody looks again after a device that goes.
        let device = devices.iter().find(|known| known.is(&rdma));
        let refused = match device {
            Some(device) => {
                let refused = self.parking.park(request);
                // Not before that: who tends it now would miss it.
                device.tend_later();
                refused
            }
            None => Some(request),
        };
        drop(devices);
        refused.is_none()
    }

    /// Has the removal of a device wait for the caller. None if it is not one of ours, or is being removed already. Any
    /// context but a hard interrupt.
    pub(crate) fn hold(&self, device: &RdmaDevice) -> Option<Hold> {
        self.find(device)?.users.hold()
    }

    /// Has the removal of any device wait for the caller, who is going to have an identifier of the CM that has none yet.
    /// Fails with ENOMEM. May sleep.
    pub(super) fn section(&self) -> Result<Section> {
        self.addrs.sections().open()
    }

    /// Enters an endpoint as a user of its device. May sleep.
    ///
    /// Fails with ENODEV if the device is not one of ours, or is being removed.
    pub(super) fn use_device(
        &self,
        device: &RdmaDevice,
        events: &Arc<EndpointShared>,
    ) -> Result<DeviceUse> {
        let device = self.find(device).ok_or(ENODEV)?;
        let number = device.users.enter(events)?;
        // It may have moved before it was on the list.
        events.check_address(&self.addrs, device.id);
        Ok(DeviceUse { device, number })
    }

    /// Which device has the local address of a connection, as far as that is certain. May sleep.
    pub(super) fn device_of_addr(&self, key: &ConnKey) -> Option<Option<DeviceId>> {
        self.addrs.settled(IpBits::new(key.laddr), key.scope)
    }

    /// The pools of a device, if it is one of ours. Any context.
    pub(crate) fn pools_of(&self, device: &RdmaDevice) -> Option<Arc<Pools>> {
        Some(self.find(device)?.pools.clone())
    }
}

impl Ib {
    /// The device that has a local address. Fails with ENOMEM. May sleep.
    fn device_of(&self, addr: Ipv6Addr, scope: u32) -> Result<Option<Arc<Device>>> {
        let id = self.addrs.device_of(IpBits::new(addr), scope)?;
        let devices = self.devices.lock();
        let device = devices.iter().find(|device| Some(device.id) == id);
        Ok(device.cloned())
    }
}

impl Transport for Ib {
    fn fragment(&self) -> FragmentSize {
        self.fragment
    }

    fn claims(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool> {
        if !net.is_init() {
            return Ok(false);
        }
        self.addrs.has(addr, scope)
    }

    fn pools(&self, addr: Ipv6Addr, scope: u32) -> Result<Arc<Pools>> {
        let device = self.device_of(addr, scope)?;
        let pools = device.as_ref().map(|device| &device.pools);
        Ok(pools.unwrap_or(self.unmapped.pools()).clone())
    }

    fn register(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        let access = match access {
            Access::Writable { .. } => Access::Writable {
                atomics: device.caps.atomics,
            },
            other => other,
        };
        let addr = socket_addr(addr, 0, scope);
        let held = device.regions.register(&addr, memory, access)?;
        Ok(KBox::new(held, GFP_KERNEL)?)
    }

    fn max_contiguous_map(&self, addr: Ipv6Addr, scope: u32) -> Result<u64> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        Ok(device.regions.max_contiguous_map())
    }

    fn map(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        needs: OpKind,
        then: Arc<dyn OnRelease>,
    ) -> Result<Mapped> {
        let device = self.device_of(addr, scope)?.ok_or(ENODEV)?;
        let caps = &device.caps;
        let has = |masked| caps.max_initiator_depth > 0 && !device.pd.refuses_atomics(masked);
        let able = match needs {
            OpKind::Write => true,
            OpKind::Read => caps.max_initiator_depth > 0,
            OpKind::Atomic => caps.atomics && has(false),
            OpKind::MaskedAtomic => caps.masked_atomics && has(true),
        };
        if !able {
            return Err(Errno::NotSupported.into());
        }
        let access = match needs {
            OpKind::Write => Access::Source,
            _ => Access::Sink {
                by_peer: caps.read_sink_is_remote,
            },
        };
        let addr = socket_addr(addr, 0, scope);
        let (held, pieces) = device.regions.map(&addr, memory, access, then)?;
        Ok(Mapped {
            memory: KBox::new(held, GFP_KERNEL_ACCOUNT)?,
            pieces,
            completion_is_local_only: needs == OpKind::Write && caps.writes_unheard,
        })
    }

    fn settle_memory(&self, addr: Ipv6Addr, scope: u32) -> Result {
        if let Some(device) = self.device_of(addr, scope)? {
            device.regions.settle();
        }
        Ok(())
    }

    fn pool_limit(&self) -> usize {
        self.limits.most.bytes()
    }

    fn pool_bytes(&self) -> u64 {
        let mut holdings = Holdings::default();
        self.unmapped.pools().add_to(&mut holdings);
        for device in self.devices.lock().iter() {
            device.pools.add_to(&mut holdings);
        }
        holdings.bytes()
    }

    fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let mut holdings = Holdings::default();
        self.unmapped.pools().add_to(&mut holdings);
        let mut kept = 0usize;
        for device in self.devices.lock().iter() {
            device.pools.add_to(&mut holdings);
            kept = kept.saturating_add(device.pd.kept());
        }
        holdings.report(&self.limits.counters, each);
        // Regions that their devices did not end when they should have: see Documentation/rdma.md.
        each("ib_mr_kept", kept as u64);
    }

    fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        for at in 0.. {
            // Shown without the lock.
            let device = self.devices.lock().get(at).cloned();
            let Some(device) = device else {
                break;
            };
            let rdma = device.pd.device();
            rdma.with_name(|name| each(&name, &device.pools));
        }
        each(&"none", self.unmapped.pools());
    }

    fn resolve(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        IbEndpoint::resolve(&self, connection)
    }
}

/// What is kept of a device while it is there. Fields are dropped in this order.
pub(crate) struct Member {
    _addrs: DeviceAddrs,
    device: Arc<Device>,
}

/// The cell by which the device callbacks find us.
static CELL: ClientCell = ClientCell::new();

impl Client for Ib {
    const NAME: &'static CStr = c"rds_rust";
    type Data = Member;

    fn cell() -> &'static ClientCell {
        &CELL
    }

    fn added(&self, rdma: &RdmaDevice) -> Result<Option<Arc<Member>>> {
        if !rdma.has_reliable_connections() {
            return Ok(None);
        }
        let unmapped = self.unmapped.pools();
        let device = Device::new(rdma, unmapped, &self.limits, &self.tunables, &self.parking)?;
        self.devices.lock().push(device.clone(), GFP_ATOMIC)?;
        // Only now: who finds the device by an address finds it on the list.
        let addrs = self.addrs.add_device(rdma, device.users.clone());
        let member = addrs.and_then(|addrs| {
            let member = Member {
                _addrs: addrs,
                device: device.clone(),
            };
            Ok(Arc::new(member, GFP_KERNEL)?)
        });
        if member.is_err() {
            self.end(rdma, &device);
        }
        rdma.with_name(|name| match &member {
            // Programs look for C's words.
            Ok(_) => pr_info!("RDS/IB: {}: added\n", name),
            Err(error) => pr_err!("{}: cannot be used: {:?}\n", name, error),
        });
        member.map(Some)
    }

    fn removed(&self, rdma: &RdmaDevice, member: Arc<Member>) {
        let device = member.device.clone();
        // No socket can be bound to it from here on.
        drop(member);
        self.end(rdma, &device);
        rdma.with_name(|name| pr_info!("{}: removed\n", name));
    }
}
