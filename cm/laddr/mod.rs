// SPDX-License-Identifier: GPL-2.0

//! Which RDMA device has a local address: what `bind(2)` asks.
//!
//! # Operation
//!
//! The connection manager knows, but to ask it takes an identifier and its locks. So its answers are
//! remembered in a [`Table`] until something happens that may change one: an address, a network
//! device or a port of an RDMA device changes, or an RDMA device comes or goes. Then all answers are
//! forgotten, and soon afterwards the manager is asked about all addresses that this machine has. So
//! a bind finds its answer there, the first one as well. If it does not, it asks by itself; who wants
//! to know the same meanwhile waits for that answer.
//!
//! Then those who use the addresses of a device, its [`AddrUser`]s, are told to look whether it still has
//! them.
//!
//! Only addresses that network devices have are remembered, whether an RDMA device has them or not.
//! All others need no memory: the IP layer says that they are elsewhere. Some it takes for ours only
//! because of a route, of whose end nobody would tell us; about those the manager is asked each time.
//!
//! # Context
//!
//! Events come with locks held, of RTNL to those of the RDMA core; [`LocalAddrs::changed`] takes none.
//! Questions are asked in process context without a lock.
//!
//! # Errors
//!
//! What is not certain is not remembered: the manager had no memory or no port, or named a device
//! that is going.

mod table;

use crate::kapi::{
    net::{for_each_assigned, locality, AddressWatch, IpBits, Locality, Watch},
    rdma::{local_device, Device, DeviceId, PortWatch},
    sync::{cancel_delayed, new_spinlock_bh, OwnedQueue, Sections, SpinLockBh},
    task::without_io,
};
use core::{
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::atomic,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full},
        Arc, Completion, SetOnce,
    },
    workqueue::{DelayedWork, WorkItem},
};
use table::{AddrKey, Answer, Epoch, Set, Table, Writer, WAYS};

/// Sets of the table; a power of two.
const SETS: usize = 128;

/// Addresses that are asked about without a bind, so that the table has room for more.
const REFRESH_MAX: usize = SETS * WAYS / 2;

/// Time from an event to the questions, in milliseconds: events come in groups.
const REFRESH_DELAY_MS: u32 = 20;

/// Who uses the addresses of a device.
pub(crate) trait AddrUser: Send + Sync {
    /// Something has changed: which device has an address, perhaps. Process context, without a lock;
    /// may sleep.
    fn recheck(&self, addrs: &LocalAddrs);
}

/// A device that connections can use.
struct AddrOwner {
    id: DeviceId,
    user: Arc<dyn AddrUser>,
}

/// A question that is being asked.
#[pin_data]
struct Question {
    key: AddrKey,
    epoch: Epoch,
    answer: SetOnce<Result<Answer>>,
    #[pin]
    answered: Completion,
}

/// The local addresses.
#[pin_data]
pub(crate) struct LocalAddrs {
    table: Table<KBox<[Set; SETS]>, SETS>,
    #[pin]
    writer: SpinLockBh<Writer>,
    /// The devices that connections can use.
    #[pin]
    devices: SpinLockBh<KVec<AddrOwner>>,
    #[pin]
    questions: SpinLockBh<KVec<Arc<Question>>>,
    /// Identifiers of the CM that have no device yet, or nobody knows which one.
    sections: Arc<Sections>,
    /// Somebody will call `start`: the work item, or at first who made this.
    armed: Atomic<bool>,
    #[pin]
    refresh: DelayedWork<Self>,
    queue: Arc<OwnedQueue>,
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self> for LocalAddrs { self.refresh }
}

impl WorkItem for LocalAddrs {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.start();
        });
    }
}

impl Watch for LocalAddrs {
    fn changed(self: &Arc<Self>) {
        self.table.flush();
        if !self.armed.xchg(true, Full) {
            self.queue.arm(self.clone(), REFRESH_DELAY_MS);
        }
    }
}

impl LocalAddrs {
    /// Without devices. May sleep.
    pub(crate) fn new(queue: Arc<OwnedQueue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                table: Table::new(KBox::init(pin_init::init_array_from_fn(|_| Set::new()), GFP_KERNEL)?),
                writer <- new_spinlock_bh!(Writer::new(), "LocalAddrs::writer"),
                devices <- new_spinlock_bh!(KVec::new(), "LocalAddrs::devices"),
                questions <- new_spinlock_bh!(KVec::new(), "LocalAddrs::questions"),
                sections: Sections::new()?,
                armed: Atomic::new(true),
                refresh <- kernel::new_delayed_work!("LocalAddrs::refresh"),
                queue,
            }),
            GFP_KERNEL,
        )
    }

    /// A device that connections can use from now on, until the result is dropped, and who is told when
    /// its addresses may have moved. May sleep.
    pub(crate) fn add_device(
        self: &Arc<Self>,
        device: &Device,
        user: Arc<dyn AddrUser>,
    ) -> Result<DeviceAddrs> {
        let home = AddrOwner {
            id: device.id(),
            user,
        };
        self.devices.lock().push(home, GFP_ATOMIC)?;
        // Whatever fails below, it goes off the list again.
        let mut this = DeviceAddrs {
            ports: None,
            id: device.id(),
            addrs: self.clone(),
        };
        this.ports = Some(PortWatch::new(device, self)?);
        self.changed();
        Ok(this)
    }

    /// Whether a device has an address of the initial namespace; `scope` is zero for all but link-local
    /// ones. Takes no lock if that is known, else it may sleep, but not in a handler of the CM.
    ///
    /// Fails with ENOMEM.
    #[inline]
    pub(crate) fn has(&self, addr: IpBits, scope: u32) -> Result<bool> {
        Ok(self.answer(addr, scope)?.is_some())
    }

    /// The device that has an address, otherwise as [`Self::has`].
    pub(crate) fn device_of(&self, addr: IpBits, scope: u32) -> Result<Option<DeviceId>> {
        Ok(self.answer(addr, scope)?.map(DeviceId))
    }

    /// The device that has an address, if it has one, as far as that is certain: otherwise there is no
    /// answer. That goes also for addresses that are ours by a route only. Context as [`Self::has`].
    pub(crate) fn settled(&self, addr: IpBits, scope: u32) -> Option<Option<DeviceId>> {
        let key = AddrKey::new(addr.halves(), scope);
        if locality(key.addr(), scope) == Locality::Elsewhere {
            return Some(None);
        }
        self.answer(addr, scope).ok()?;
        // Only what is certain is remembered.
        Some(self.table.get(&key)?.map(DeviceId))
    }

    #[inline(always)]
    fn answer(&self, addr: IpBits, scope: u32) -> Result<Answer> {
        let key = AddrKey::new(addr.halves(), scope);
        match self.table.get(&key) {
            Some(answer) => Ok(answer),
            None => self.ask(key),
        }
    }

    /// Finds the answer that is not known. May sleep.
    #[cold]
    fn ask(&self, key: AddrKey) -> Result<Answer> {
        let epoch = self.table.epoch();
        let locality = locality(key.addr(), key.scope());
        if locality == Locality::Elsewhere || self.devices.lock().is_empty() {
            return Ok(None);
        }
        let question = Arc::pin_init(
            pin_init!(Question {
                key,
                epoch,
                answer: SetOnce::new(),
                answered <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let mut questions = self.questions.lock();
        // Who has asked before may have its answer by now.
        if let Some(answer) = self.table.get(&key) {
            return Ok(answer);
        }
        let same = |other: &&Arc<Question>| other.key == key && other.epoch == epoch;
        if let Some(other) = questions.iter().find(same).cloned() {
            drop(questions);
            other.answered.wait_for_completion();
            return other.answer.copy().unwrap_or(Ok(None));
        }
        questions.push(question.clone(), GFP_ATOMIC)?;
        drop(questions);

        let (answer, certain) = self.ask_cm(&key);
        if let (Ok(answer), true) = (answer, certain && locality == Locality::Assigned) {
            self.table
                .insert(&mut self.writer.lock(), &key, answer, epoch);
        }
        let _: bool = question.answer.populate(answer);
        let mut questions = self.questions.lock();
        let at = questions.iter().position(|q| Arc::ptr_eq(q, &question));
        let done = at.and_then(|at| questions.remove(at).ok());
        drop(questions);
        drop(done);
        question.answered.complete_all();
        answer
    }

    /// The sections in which an identifier of the CM may become a device's.
    pub(crate) fn sections(&self) -> &Arc<Sections> {
        &self.sections
    }

    /// What the CM says, and whether that can be relied on until something changes. Sleeps.
    fn ask_cm(&self, key: &AddrKey) -> (Result<Answer>, bool) {
        let addr = match key.addr().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), 0),
            None => SocketAddr::V6(SocketAddrV6::new(key.addr(), 0, 0, key.scope())),
        };
        let Ok(_section) = self.sections.open() else {
            return (Err(ENOMEM), false);
        };
        match local_device(&addr) {
            Ok(device) => {
                let id = device.id();
                // The CM loses a device that is removed after us, and nobody tells us then.
                let ours = self.devices.lock().iter().any(|home| home.id == id);
                (Ok(ours.then_some(id.0)), ours)
            }
            Err(ENODEV) => (Ok(None), true),
            Err(ENOMEM) => (Err(ENOMEM), false),
            Err(_) => (Ok(None), false),
        }
    }

    /// Finds the answers for the addresses that this machine has, has those who use them look whether
    /// they still do, and from here on also after each event. Has to be called once, after there are
    /// devices and [`AddrEvents`]. May sleep.
    pub(crate) fn start(&self) {
        // Before anything is looked at: what happens from here on has to be looked at again.
        self.armed.xchg(false, Full);
        if self.devices.lock().is_empty() {
            return;
        }
        let ask = |addr: Ipv6Addr, scope| {
            // Who binds to it asks again, and is told.
            let _ = self.device_of(IpBits::new(addr), scope);
        };
        // Without memory the same goes for all of them.
        let _ = for_each_assigned(REFRESH_MAX, ask);
        // Downwards: when one goes meanwhile, another is told twice, and none is missed.
        let count = self.devices.lock().len();
        for index in (0..count).rev() {
            let devices = self.devices.lock();
            let user = devices.get(index).map(|home| home.user.clone());
            drop(devices);
            if let Some(user) = user {
                user.recheck(self);
            }
        }
    }
}

/// A device that connections can use. Dropping it sleeps; afterwards no address is the device's.
pub(crate) struct DeviceAddrs {
    ports: Option<Pin<KBox<PortWatch<LocalAddrs>>>>,
    id: DeviceId,
    addrs: Arc<LocalAddrs>,
}

impl Drop for DeviceAddrs {
    fn drop(&mut self) {
        let mut devices = self.addrs.devices.lock();
        let at = devices.iter().position(|home| home.id == self.id);
        // It is there: this is what took it in.
        let home = at.and_then(|at| devices.remove(at).ok());
        drop(devices);
        drop(home);
        // Only now, or an answer could be remembered that still has the device.
        self.addrs.changed();
        drop(self.ports.take());
    }
}

/// Keeps the table true. When it is dropped, which sleeps, all devices must be gone.
pub(crate) struct AddrEvents {
    _watch: Pin<KBox<AddressWatch<LocalAddrs>>>,
    _refresh: Refresh,
}

impl AddrEvents {
    /// May sleep; takes RTNL.
    pub(crate) fn new(addrs: &Arc<LocalAddrs>) -> Result<Self> {
        let refresh = Refresh(addrs.clone());
        Ok(Self {
            _watch: AddressWatch::new(addrs)?,
            _refresh: refresh,
        })
    }
}

/// Cancels what an event has set off. None can come any more.
struct Refresh(Arc<LocalAddrs>);

impl Drop for Refresh {
    fn drop(&mut self) {
        cancel_delayed(&self.0);
    }
}
