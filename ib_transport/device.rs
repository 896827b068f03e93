// SPDX-License-Identifier: GPL-2.0

//! RDMA devices of this node, and the transport that uses them.

use super::{
    cq_watchdog::CqWatchdog,
    endpoint::{EndpointShared, IbEndpoint},
    endpoint_list::{EndpointList, Hold},
    mr::MrPool,
    private::socket_addr,
    qp_context::{NextCheck, QpContext},
    quirks::{DeferredCmId, DeferredDestroy},
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
    rdma::{Access, Client, ClientCell, DeviceCaps, DeviceId, IbDevice, IncomingRequest, Pd, Qp},
    shrinker::Shrinker,
    sync::{cancel, cancel_delayed, new_spinlock_bh, OwnedQueue, Section, SpinLockBh},
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

/// Period of the checks of deep receive rings, in milliseconds.
const PERIOD_MS: u32 = 2000;
/// Delay of a check that an endpoint needs before the period ends, in milliseconds.
const SOON_MS: u32 = 20;
/// Minimum time between two connections that are given up for memory, in milliseconds.
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
    /// Work item that checks the receive rings.
    #[pin]
    service_ring: DelayedWork<Device, 0>,
    /// The work item is scheduled.
    tending: Atomic<bool>,
    /// The work item is scheduled after [`SOON_MS`] or less.
    soon: Atomic<bool>,
    /// Monotonic time in nanoseconds at which the current period ends.
    period_end: Atomic<u64>,
    /// Monotonic time in nanoseconds before which no connection may be given up for memory.
    spared_until: Atomic<u64>,
    /// Rate of the port when the last queue pair was created, in Mbit/s; 0 if unknown.
    mbits: Atomic<u32>,
}

/// Returns the time `delay_ms` after `now`, in nanoseconds.
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
    fn new(device: &IbDevice, unmapped: &Arc<Pools>, ib: &Ib) -> Result<Arc<Self>> {
        let pd = Pd::new(device)?;
        let users = EndpointList::new(device.id(), ib.addrs.sections().clone())?;
        let pools = Pools::new(&pd, unmapped.clone(), &ib.limits)?;
        let regions = MrPool::new(&pd, &users, &ib.tunables, &ib.limits.queue)?;
        Arc::pin_init(
            try_pin_init!(Self {
                id: device.id(),
                pd,
                _shrinker: Shrinker::new(pools.clone())?,
                pools,
                caps: device.caps(),
                watch: CqWatchdog::new(&users, &regions, &ib.tunables, &ib.limits.queue)?,
                regions,
                users,
                queue: ib.limits.queue.clone(),
                parking: ib.parking.clone(),
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

    fn is(&self, device: &IbDevice) -> bool {
        core::ptr::eq(self.pd.device(), device)
    }

    /// Ends all use of the device, and waits until there is none. Sleeps.
    fn close(self: &Arc<Self>) {
        self.users.close();
        self.regions.close();
        // Without endpoints nothing arms these again.
        self.watch.end();
        cancel_delayed::<_, 0>(self);
        // The item owns the queue, which must not end within an item of its own.
        cancel::<_, 0>(&self.regions);
    }

    /// Returns `true` if peers may use memory of programs. Any context except hard interrupt.
    pub(super) fn offers_memory(&self) -> bool {
        self.regions.offer_memory()
    }

    /// Returns the time in nanoseconds that operations of a peer on that memory may take. Any
    /// context except hard interrupt.
    pub(super) fn time_for_operations(&self) -> u64 {
        time_for_operations(self.mbits.load(Relaxed), self.users.len())
    }

    /// Notes that a posted send completed, or that a queue pair is gone. Any context.
    #[inline]
    pub(super) fn note_progress(&self) {
        self.regions.note_progress();
    }

    /// Schedules a check of the receive rings at the end of the period. Any context.
    pub(super) fn tend_later(self: &Arc<Self>) {
        if !self.tending.load(Relaxed) && !self.tending.xchg(true, Full) {
            // A shorter delay that was set meanwhile must not be replaced.
            self.queue.arm_unless_set::<_, 0>(self.clone(), PERIOD_MS);
        }
    }

    /// Schedules a check after `delay_ms`, even before the end of the period. Any context.
    fn tend_in(self: &Arc<Self>, delay_ms: u32) {
        self.tending.store(true, Relaxed);
        self.queue.arm::<_, 0>(self.clone(), delay_ms);
    }

    /// Schedules a check after [`SOON_MS`]. Any context.
    pub(super) fn tend_soon(self: &Arc<Self>) {
        // Repeated requests must not postpone the check.
        if !self.soon.xchg(true, Full) {
            self.tend_in(SOON_MS);
        }
    }

    /// Schedules a check at once. Any context.
    pub(super) fn tend_now(self: &Arc<Self>) {
        self.tend_in(0);
    }

    /// Returns `true` if a connection may be given up for the memory that it keeps or needs. Only
    /// one at a time: its memory may suffice for the others. Called only by `service_ring`.
    pub(super) fn may_give_up_one(&self) -> bool {
        let now = time::monotonic_ns();
        let may = now >= self.spared_until.load(Relaxed);
        if may {
            self.spared_until.store(later(now, GIVE_UP_MS), Relaxed);
        }
        may
    }

    /// Checks the receive rings of endpoints that request it, and of all when a period ends. Also
    /// destroys deferred CM ids. Returns the number of checked endpoints. Sleeps.
    pub(super) fn service_ring(self: &Arc<Self>) -> usize {
        self.tending.store(false, Relaxed);
        // Ordered before the check of the endpoints, or a request between both would be lost.
        self.soon.xchg(false, Full);
        let now = time::monotonic_ns();
        let period_ends = now >= self.period_end.load(Relaxed);
        if period_ends {
            self.period_end.store(later(now, PERIOD_MS), Relaxed);
        }
        // Endpoints that are skipped now may need a check then.
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

/// Use of a device by an endpoint.
pub(super) struct DeviceUse {
    pub(super) device: Arc<Device>,
    /// Number of the endpoint in `users`.
    number: u64,
}

impl DeviceUse {
    /// Records the endpoint's queue pair, and the rate of the port. Sleeps.
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
    /// Fragment size to propose to peers.
    pub(super) fragment: FragmentSize,
    pub(super) tunables: Arc<IbTunables>,
    /// Memory of messages that wait while no device has their address.
    unmapped: Unmapped,
    _shrinker: Shrinker<Pools>,
    pub(super) parking: Arc<DeferredDestroy>,
}

impl Ib {
    /// Creates a transport without devices. Registering the client adds them. May sleep.
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

    fn find(&self, device: &IbDevice) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        devices.iter().find(|known| known.is(device)).cloned()
    }

    /// Ends all use of a device to which no socket can be bound any more. Sleeps.
    fn end(&self, rdma: &IbDevice, device: &Arc<Device>) {
        self.forget(device);
        // This also waits for requests that no worker has taken. The CM would release the device
        // only some time after it reports that an id is gone, which may be too late.
        device.close();
        // Wait for CM ids that had no device yet when their creation began.
        self.addrs.sections().settle();
        // Only users of the device and its work item destroy these, and both are gone.
        self.parking.clear(device.id);
        // `close` has waited for all queue pairs, so an error is a defect.
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

    /// Removes a device from the list.
    fn forget(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        let at = devices.iter().position(|known| Arc::ptr_eq(known, device));
        let gone = at.and_then(|at| devices.remove(at).ok());
        drop(devices);
        drop(gone);
    }

    /// Defers the rejection of a request until its network device is up. Returns `false` if it is
    /// rejected at once: no memory, too many requests, or no device. May sleep.
    pub(crate) fn park(&self, request: IncomingRequest) -> bool {
        let Some(rdma) = request.device() else {
            return false;
        };
        let Ok(request) = DeferredCmId::request(rdma.id(), request) else {
            return false;
        };
        let devices = self.devices.lock();
        // A removed device has no work item to check the request again.
        let device = devices.iter().find(|known| known.is(&rdma));
        let refused = match device {
            Some(device) => {
                let refused = self.parking.park(request);
                // Not earlier: a check that runs before would miss the request.
                device.tend_later();
                refused
            }
            None => Some(request),
        };
        drop(devices);
        refused.is_none()
    }

    /// Makes the removal of a device wait. Returns `None` if the transport does not use the device,
    /// or it is being removed. Any context except hard interrupt.
    pub(crate) fn hold(&self, device: &IbDevice) -> Option<Hold> {
        self.find(device)?.users.hold()
    }

    /// Makes the removal of any device wait for the caller, whose new CM id has no device yet.
    /// Fails only with `ENOMEM`. May sleep.
    pub(super) fn section(&self) -> Result<Section> {
        self.addrs.sections().open()
    }

    /// Registers an endpoint as a user of its device. Returns `ENODEV` if the transport does not
    /// use the device, or it is being removed. May sleep.
    pub(super) fn use_device(
        &self,
        device: &IbDevice,
        events: &Arc<EndpointShared>,
    ) -> Result<DeviceUse> {
        let device = self.find(device).ok_or(ENODEV)?;
        let number = device.users.enter(events)?;
        // The address may have moved before the endpoint was on the list.
        events.check_address(&self.addrs, device.id);
        Ok(DeviceUse { device, number })
    }

    /// Returns the device of a connection's local address, as far as certain. May sleep.
    pub(super) fn device_of_addr(&self, key: &ConnKey) -> Option<Option<DeviceId>> {
        self.addrs.settled(IpBits::new(key.laddr), key.scope)
    }

    /// Returns the pools of a device if the transport uses it. Any context.
    pub(crate) fn pools_of(&self, device: &IbDevice) -> Option<Arc<Pools>> {
        Some(self.find(device)?.pools.clone())
    }
}

impl Ib {
    /// Returns the device that has a local address. Fails only with `ENOMEM`. May sleep.
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
        // MRs that their devices failed to destroy: see Documentation/rdma.md.
        each("ib_mr_kept", kept as u64);
    }

    fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        for at in 0.. {
            // `each` is called without the lock.
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

/// State of a device for the client callbacks. Fields are dropped in this order.
pub(crate) struct Member {
    _addrs: DeviceAddrs,
    device: Arc<Device>,
}

/// Cell in which the callbacks find the registered client.
static CELL: ClientCell = ClientCell::new();

impl Client for Ib {
    const NAME: &'static CStr = c"rds_rust";
    type Data = Member;

    fn cell() -> &'static ClientCell {
        &CELL
    }

    fn added(&self, rdma: &IbDevice) -> Result<Option<Arc<Member>>> {
        if !rdma.has_reliable_connections() {
            return Ok(None);
        }
        let unmapped = self.unmapped.pools();
        let device = Device::new(rdma, unmapped, self)?;
        self.devices.lock().push(device.clone(), GFP_ATOMIC)?;
        // Only now: a device that is found by an address must be on the list.
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
            // The text is that of C RDS, because programs search for it.
            Ok(_) => pr_info!("RDS/IB: {}: added\n", name),
            Err(error) => pr_err!("{}: cannot be used: {:?}\n", name, error),
        });
        member.map(Some)
    }

    fn removed(&self, rdma: &IbDevice, member: Arc<Member>) {
        let device = member.device.clone();
        // From here on no socket can be bound to an address of the device.
        drop(member);
        self.end(rdma, &device);
        rdma.with_name(|name| pr_info!("{}: removed\n", name));
    }
}
