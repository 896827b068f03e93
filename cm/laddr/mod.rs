// SPDX-License-Identifier: GPL-2.0

//! Local addresses of a network namespace: finds the RDMA device of an address for `bind(2)` and
//! others.
//!
//! # Operation
//!
//! A lookup in the connection manager needs a CM id and takes its locks. So the answers are cached
//! in an [`AddrTable`] until an event that may change one. Such an event changes an address, a
//! network device or a port of an RDMA device, or adds or removes an RDMA device. It invalidates
//! all answers. Shortly afterwards all addresses of the initial namespace are looked up again, so
//! even the first bind hits the cache. A bind that misses does its own lookup. Others that want the
//! same answer meanwhile wait for that lookup.
//!
//! Then each device's [`AddrUser`] is notified, so that it can check its addresses.
//!
//! Only addresses of network devices are cached, with or without an RDMA device. All others need no
//! cache, because the IP layer says that they are remote. Some addresses are local only because of
//! a route. No event reports the end of a route, so these are looked up each time.
//!
//! # Context
//!
//! Events arrive with locks held, such as RTNL or locks of the RDMA core. [`LocalAddrs::changed`]
//! takes none. Lookups run in process context without a lock.
//!
//! # Errors
//!
//! Uncertain answers are not cached: the CM had no memory or no port, or it named a device that is
//! being removed.

mod lookups;
mod pace;
mod table;

use crate::kapi::{
    net::{
        AddressWatch,
        IpBits,
        Locality,
        Net,
        NetRef,
        Watch, //
    },
    rdma::{
        local_device,
        DeviceId,
        IbDevice,
        PortWatch, //
    },
    sync::{
        cancel_delayed,
        new_spinlock_bh,
        OwnedQueue,
        Sections,
        SpinLockBh, //
    },
    task::without_io,
    time, //
};
use core::{
    net::{
        IpAddr,
        Ipv6Addr,
        SocketAddr,
        SocketAddrV6, //
    },
    sync::atomic, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Completion,
        SetOnce, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};
use lookups::{
    LookupKey,
    LookupPlace,
    Lookups, //
};
use table::{
    AddrKey,
    AddrTable,
    Answer,
    Set,
    TableWriter,
    WAYS, //
};

/// Number of sets in the table, a power of two.
const SETS: usize = 128;

/// Limit for the addresses that are looked up in advance. Leaves half of the table free.
const REFRESH_MAX: usize = SETS * WAYS / 2;

#[cfg(rds_kunit)]
pub(crate) mod kunit {
    pub(crate) use super::{
        lookups::{
            LookupKey,
            LookupPlace,
            Lookups, //
        },
        table::{
            AddrKey,
            AddrTable,
            Set, //
        }, //
    };
}

/// User of the addresses of a device.
pub(crate) trait AddrUser: Send + Sync {
    /// Notifies the user that addresses may have moved to or from its device.
    ///
    /// # Context
    ///
    /// Process context, no locks held. May sleep.
    fn recheck(&self, addrs: &LocalAddrs);
}

/// A device that connections can use.
struct AddrOwner {
    id: DeviceId,
    user: Arc<dyn AddrUser>,
}

/// A lookup in progress.
#[pin_data]
struct Lookup {
    answer: SetOnce<Result<Answer>>,
    #[pin]
    answered: Completion,
}

/// The devices that connections of any network namespace can use.
#[pin_data]
pub(crate) struct AddrOwners {
    #[pin]
    devices: SpinLockBh<KVec<AddrOwner>>,
    /// The namespaces to which events of the devices matter.
    #[pin]
    all: SpinLockBh<KVec<Arc<LocalAddrs>>>,
    /// Sections in which a CM id exists whose device is not known.
    sections: Arc<Sections>,
    /// Work queue of what waits for the CM. Receive rings are filled on another one.
    queue: OwnedQueue,
}

impl AddrOwners {
    /// Creates the state without devices.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                devices <- new_spinlock_bh!(KVec::new(), "AddrOwners::devices"),
                all <- new_spinlock_bh!(KVec::new(), "AddrOwners::all"),
                sections: Sections::new()?,
                queue: OwnedQueue::new(c"rds_cm")?,
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a device that connections can use until the result is dropped. `user` is notified when
    /// addresses of the device may have moved.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn add_device(
        self: &Arc<Self>,
        device: &IbDevice,
        user: Arc<dyn AddrUser>,
    ) -> Result<DeviceAddrs> {
        let owner = AddrOwner {
            id: device.id(),
            user,
        };
        self.devices.lock().push(owner, GFP_ATOMIC)?;
        // Dropping this removes the device again if a step below fails.
        let mut this = DeviceAddrs {
            ports: None,
            id: device.id(),
            owners: self.clone(),
        };
        this.ports = Some(PortWatch::new(device, self)?);
        self.changed();
        Ok(this)
    }

    /// Returns the device of an address in a network namespace, without a cache. Errors and context
    /// as for [`LocalAddrs::has`]. The flag is `true` if the answer is valid until the next event.
    fn query_cm(&self, net: &NetRef, key: &AddrKey) -> (Result<Answer>, bool) {
        let addr = match key.addr().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), 0),
            None => SocketAddr::V6(SocketAddrV6::new(key.addr(), 0, 0, key.scope())),
        };
        let Ok(_section) = self.sections.open() else {
            return (Err(ENOMEM), false);
        };
        match local_device(net, &addr) {
            Ok(device) => {
                let id = device.id();
                // The CM drops a device after this module has. No event reports that.
                let known = self.devices.lock().iter().any(|owner| owner.id == id);
                (Ok(known.then_some(id.0)), known)
            }
            Err(ENODEV) => (Ok(None), true),
            Err(ENOMEM) => (Err(ENOMEM), false),
            Err(_) => (Ok(None), false),
        }
    }

    /// Returns `true` if there is a device, and an address is a local one of a namespace.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn may_have(&self, net: &NetRef, addr: IpBits, scope: u32) -> bool {
        let addr = AddrKey::new(addr.halves(), scope).addr();
        !self.devices.lock().is_empty() && net.locality(addr, scope) != Locality::Elsewhere
    }

    /// Returns the sections in which a CM id may be bound to a device.
    pub(crate) fn sections(&self) -> &Arc<Sections> {
        &self.sections
    }

    /// Returns the work queue of what waits for the CM.
    pub(crate) fn queue(&self) -> &OwnedQueue {
        &self.queue
    }
}

/// Events of ports may concern each namespace.
impl Watch for AddrOwners {
    fn changed(self: &Arc<Self>) {
        // Backwards: if a namespace ends meanwhile, another is notified twice, but none is missed.
        // One that begins meanwhile has no answer from before the event.
        let count = self.all.lock().len();
        for index in (0..count).rev() {
            let all = self.all.lock();
            let addrs = all.get(index).cloned();
            drop(all);
            if let Some(addrs) = addrs {
                addrs.changed();
            }
        }
    }
}

/// The local addresses of a network namespace, and the devices that have them.
#[pin_data]
pub(crate) struct LocalAddrs {
    net: NetRef,
    owners: Arc<AddrOwners>,
    table: AddrTable<KBox<[Set; SETS]>, SETS>,
    #[pin]
    writer: SpinLockBh<TableWriter>,
    #[pin]
    lookups: SpinLockBh<Lookups<Arc<Lookup>>>,
    /// A call of `start` is pending: by the work item, or at first by the creator of this object.
    armed: Atomic<bool>,
    /// Time before which `start` is not called again, in nanoseconds of the monotonic clock.
    not_before: Atomic<u64>,
    #[pin]
    refresh: DelayedWork<Self>,
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self> for LocalAddrs { self.refresh }
}

impl WorkItem for LocalAddrs {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            // An event during the last round did not know how long that would take.
            if time::monotonic_ns() < this.not_before.load(Relaxed) {
                this.arm();
            } else {
                this.start();
            }
        });
    }
}

impl Watch for LocalAddrs {
    fn changed(self: &Arc<Self>) {
        self.table.flush();
        if !self.armed.xchg(true, Full) {
            self.arm();
        }
    }
}

impl LocalAddrs {
    /// Creates the state without answers.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn new(net: NetRef, owners: &Arc<AddrOwners>) -> Result<Arc<Self>> {
        // Containers pay for those of their namespaces.
        let flags = match net.id().is_init() {
            true => GFP_KERNEL,
            false => GFP_KERNEL_ACCOUNT,
        };
        let sets = KBox::init(pin_init::init_array_from_fn(|_| Set::new()), flags)?;
        Arc::pin_init(
            try_pin_init!(Self {
                net,
                owners: owners.clone(),
                table: AddrTable::new(sets),
                writer <- new_spinlock_bh!(TableWriter::new(), "LocalAddrs::writer"),
                lookups <- new_spinlock_bh!(Lookups::new(), "LocalAddrs::lookups"),
                armed: Atomic::new(true),
                not_before: Atomic::new(0),
                refresh <- kernel::new_delayed_work!("LocalAddrs::refresh"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the namespace of the addresses.
    pub(crate) fn net(&self) -> Net {
        self.net.id()
    }

    /// Returns `true` if an RDMA device has the address. `scope` is that of a link-local address,
    /// otherwise 0.
    ///
    /// # Errors
    ///
    /// - ENOMEM: not enough memory for a lookup.
    ///
    /// # Context
    ///
    /// Takes no lock if the answer is cached. Otherwise it may sleep, and must not be called from a
    /// CM handler.
    #[inline]
    pub(crate) fn has(&self, addr: IpBits, scope: u32) -> Result<bool> {
        Ok(self.answer(addr, scope)?.is_some())
    }

    /// Returns the device that has an address. Errors and context as for [`Self::has`].
    pub(crate) fn device_of(&self, addr: IpBits, scope: u32) -> Result<Option<DeviceId>> {
        Ok(self.answer(addr, scope)?.map(DeviceId))
    }

    /// Returns the device that has an address, or `Some(None)` if no device has it. Returns `None`
    /// if the answer is uncertain, also for addresses that are local only by a route. Context as
    /// for [`Self::has`].
    pub(crate) fn certain_device_of(&self, addr: IpBits, scope: u32) -> Option<Option<DeviceId>> {
        let key = AddrKey::new(addr.halves(), scope);
        if self.net.locality(key.addr(), scope) == Locality::Elsewhere {
            return Some(None);
        }
        self.answer(addr, scope).ok()?;
        // Only certain answers are cached.
        Some(self.table.get(&key)?.map(DeviceId))
    }

    #[inline(always)]
    fn answer(&self, addr: IpBits, scope: u32) -> Result<Answer> {
        let key = AddrKey::new(addr.halves(), scope);
        match self.table.get(&key) {
            Some(answer) => Ok(answer),
            None => self.answer_uncached(key),
        }
    }

    /// Looks up an answer that is not cached. May sleep.
    #[cold]
    fn answer_uncached(&self, key: AddrKey) -> Result<Answer> {
        let epoch = self.table.epoch();
        let locality = self.net.locality(key.addr(), key.scope());
        if locality == Locality::Elsewhere || self.owners.devices.lock().is_empty() {
            return Ok(None);
        }
        let lookup = Arc::pin_init(
            pin_init!(Lookup {
                answer: SetOnce::new(),
                answered <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let place = LookupPlace::new()?;
        let lookup_key = LookupKey::new(key, epoch);
        let mut lookups = self.lookups.lock();
        // An earlier lookup may have finished by now.
        if let Some(answer) = self.table.get(&key) {
            return Ok(answer);
        }
        let other = lookups.begin(lookup_key, lookup.clone(), place);
        drop(lookups);
        if let Some(other) = other {
            other.answered.wait_for_completion();
            return other.answer.copy().unwrap_or(Ok(None));
        }

        let (answer, certain) = self.owners.query_cm(&self.net, &key);
        if let (Ok(answer), true) = (answer, certain && locality == Locality::Assigned) {
            self.table
                .insert(&mut self.writer.lock(), &key, answer, epoch);
        }
        let _: bool = lookup.answer.populate(answer);
        let done = self.lookups.lock().end(&lookup_key);
        drop(done);
        lookup.answered.complete_all();
        answer
    }

    /// Schedules the first round in place of [`Self::start`]. Any context.
    pub(crate) fn start_later(self: &Arc<Self>) {
        self.arm();
    }

    /// Schedules the next round. Any context.
    fn arm(self: &Arc<Self>) {
        let not_before = self.not_before.load(Relaxed);
        let delay_ms = pace::delay_ms(time::monotonic_ns(), not_before);
        self.owners.queue.arm(self.clone(), delay_ms);
    }

    /// Looks up the addresses of the namespace, and notifies the users of the devices. From the
    /// first call on, each event schedules another. The first call must follow the creation of
    /// [`AddrEvents`] and of the devices.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn start(&self) {
        let begun = time::monotonic_ns();
        // Cleared first: an event from here on needs another round.
        self.armed.xchg(false, Full);
        self.round();
        self.not_before
            .store(pace::next_round(begun, time::monotonic_ns()), Relaxed);
    }

    fn round(&self) {
        if self.owners.devices.lock().is_empty() {
            return;
        }
        let look_up = |addr: Ipv6Addr, scope| {
            // A failed lookup is repeated by the next bind, which gets the error.
            let _ = self.device_of(IpBits::new(addr), scope);
        };
        // There may be many other namespaces, and most of them have no device.
        if self.net().is_init() {
            // Running out of memory here has the same effect for all addresses.
            let _ = self.net.for_each_assigned(REFRESH_MAX, look_up);
        }
        // Backwards: if a device is removed meanwhile, another is notified twice, but none is
        // missed.
        let count = self.owners.devices.lock().len();
        for index in (0..count).rev() {
            let devices = self.owners.devices.lock();
            let user = devices.get(index).map(|owner| owner.user.clone());
            drop(devices);
            if let Some(user) = user {
                user.recheck(self);
            }
        }
    }
}

/// A device that connections can use. Dropping it sleeps. Afterwards no address has this device.
pub(crate) struct DeviceAddrs {
    ports: Option<Pin<KBox<PortWatch<AddrOwners>>>>,
    id: DeviceId,
    owners: Arc<AddrOwners>,
}

impl Drop for DeviceAddrs {
    fn drop(&mut self) {
        let mut devices = self.owners.devices.lock();
        let at = devices.iter().position(|owner| owner.id == self.id);
        // Always found, because `add_device` pushed it.
        let owner = at.and_then(|at| devices.remove(at).ok());
        drop(devices);
        drop(owner);
        // Only after the removal. Otherwise an answer with this device could be cached afterwards.
        self.owners.changed();
        drop(self.ports.take());
    }
}

/// The events that invalidate the table. Dropping this sleeps. The table is not used afterwards.
/// Fields are dropped in this order: what schedules the work before its end.
pub(crate) struct AddrEvents {
    _of_devices: DeviceEvents,
    _watch: Pin<KBox<AddressWatch<LocalAddrs>>>,
    _refresh: Refresh,
}

/// The events of devices for a namespace. There are none after its drop.
struct DeviceEvents(Arc<LocalAddrs>);

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        let mut all = self.0.owners.all.lock();
        let at = all.iter().position(|addrs| Arc::ptr_eq(addrs, &self.0));
        let gone = at.and_then(|at| all.remove(at).ok());
        drop(all);
        drop(gone);
    }
}

impl AddrEvents {
    /// Subscribes to the events.
    ///
    /// # Context
    ///
    /// Process context. May sleep; takes RTNL.
    pub(crate) fn new(addrs: &Arc<LocalAddrs>) -> Result<Self> {
        let refresh = Refresh(addrs.clone());
        let watch = AddressWatch::new(addrs, &addrs.net)?;
        addrs.owners.all.lock().push(addrs.clone(), GFP_ATOMIC)?;
        Ok(Self {
            _of_devices: DeviceEvents(addrs.clone()),
            _watch: watch,
            _refresh: refresh,
        })
    }
}

/// Cancels the pending work when it is dropped. No event can schedule more by then.
struct Refresh(Arc<LocalAddrs>);

impl Drop for Refresh {
    fn drop(&mut self) {
        cancel_delayed(&self.0);
    }
}
