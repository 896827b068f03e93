// SPDX-License-Identifier: GPL-2.0

//! The memory of programs that a device uses: regions for peers, and what operations of this node's take from and
//! bring to.
//!
//! What a program or an operation has is a [`Held`]. When that is dropped, in whatever context, its memory becomes
//! stale: peers may still use a region for a moment, until the device's worker has invalidated it, together with
//! others. The memory is released then, and the [`Mr`] kept for the next region.
//!
//! When the device goes, all goes with it; what is held of it stands for nothing from then on.

use super::{registrar::Registrar, spares::Spares};
use crate::conn::{Home, LocalMemory, Released, RemoteMemory};
use crate::kapi::{
    pin::PinnedMemory,
    rdma::{Access, DeviceId, LentMapping, Mapping, Mr, Pd, Pieces, Region},
    sync::{new_spinlock_bh, Fifo, Item, OwnedQueue, SpinLockBh},
    time,
};
use crate::proto::rdma::{Cookie, MAX_BYTES};
use core::net::SocketAddr;
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
    workqueue::{new_work, Work, WorkItem},
};

/// How long a device is left alone that did not answer itself, in nanoseconds: so one of those who wait for it finds that
/// out, and not one after the other.
const REST_NS: u64 = 5_000_000_000;

/// What one caller at a time uses.
struct Device {
    /// Made when it is needed for the first time, and again when it has failed.
    registrar: Option<Registrar>,
    /// When it was given up because it took too long, on the monotonic clock, and by way of which address.
    late_at: Option<(u64, SocketAddr)>,
    spares: Spares<Mr>,
}

impl Device {
    /// The registrar, which `addr` leads to if there is none yet. Sleeps.
    fn registrar(
        &mut self,
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        addr: &SocketAddr,
    ) -> Result<&Registrar> {
        if self
            .registrar
            .as_ref()
            .is_some_and(|it| it.qp().is_closed())
        {
            self.registrar = None;
        }
        let registrar = match self.registrar.take() {
            Some(usable) => usable,
            None => Registrar::make(queue, pd, addr)?,
        };
        Ok(self.registrar.insert(registrar))
    }

    /// Releases memory, and keeps what can be used again. Who waits for it is added to `released`. Sleeps.
    fn invalidate(&mut self, mut stale: Fifo<Kept>, released: &mut Fifo<Kept>) {
        let mut some: KVec<Region> = KVec::new();
        loop {
            let next = stale.pop_front();
            let last = next.is_none();
            if let Some(mut kept) = next {
                match kept.release() {
                    Some(region) if kept.spoiled => drop(region),
                    // Without memory for it, a region goes by itself; that ends all that peers may do.
                    Some(region) => drop(some.push(region, GFP_KERNEL)),
                    None => {}
                }
                released.push_back(kept);
            }
            if some.len() < BATCH && !last {
                continue;
            }
            if let Some(registrar) = &self.registrar {
                // Those that are not invalidated by this are destroyed.
                let _ = registrar.qp().invalidate(&some);
            }
            while let Some(region) = some.pop() {
                let pages = region.pages();
                if let Some(mr) = region.release() {
                    drop(self.spares.keep(pages, mr));
                }
            }
            if last {
                break;
            }
        }
    }
}

/// How many are invalidated at once.
const BATCH: usize = 32;

/// Memory of a program.
enum Memory {
    Region(Region),
    /// It has no key of its own.
    Lent(Arc<LentMapping>),
    Released,
}

/// Memory, and who waits for its release. Dropping it releases it, and sleeps.
struct Kept {
    /// Goes first.
    memory: Memory,
    /// The device may still write by what it has of the region: that is not to be used again.
    spoiled: bool,
    then: Option<Arc<dyn Released>>,
}

impl Kept {
    /// Whether peers use it: for an operation of this node's somebody waits.
    fn is_offered(&self) -> bool {
        self.then.is_none()
    }

    /// Releases the memory, or gives the region that is to be invalidated for it. Sleeps.
    fn release(&mut self) -> Option<Region> {
        match core::mem::replace(&mut self.memory, Memory::Released) {
            Memory::Region(region) => Some(region),
            Memory::Lent(lent) => {
                lent.release();
                None
            }
            Memory::Released => None,
        }
    }
}

/// What changes in any context.
struct State {
    /// What is held, by number.
    held: RBTree<u64, Item<Kept>>,
    /// How many of these peers may use.
    offered: usize,
    next: u64,
    stale: Fifo<Kept>,
    /// `None` when the device goes: it waits for all who have this.
    pd: Option<Arc<Pd>>,
}

/// The regions of a device.
#[pin_data]
pub(super) struct Regions {
    id: DeviceId,
    /// See [`DeviceCaps`](crate::kapi::rdma::DeviceCaps::reads_run_on).
    reads_run_on: bool,
    mapped_at_once: u64,
    queue: Arc<OwnedQueue>,
    /// Before `state`.
    #[pin]
    device: Mutex<Device>,
    #[pin]
    state: SpinLockBh<State>,
    #[pin]
    sweep: Work<Regions>,
}

kernel::impl_has_work! {
    impl HasWork<Self> for Regions { self.sweep }
}

impl WorkItem for Regions {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.sweep();
    }
}

impl Regions {
    /// Has none, and asks the device for none before [`Self::register`]. May sleep.
    pub(super) fn new(pd: &Arc<Pd>, queue: &Arc<OwnedQueue>) -> Result<Arc<Self>> {
        let caps = pd.device().caps();
        let most = if caps.fast_registration {
            caps.max_fast_reg_pages
        } else {
            0
        };
        let mapped_at_once = match most.checked_ilog2() {
            Some(log) => MAX_BYTES.min((PAGE_SIZE as u64) << log),
            None => MAX_BYTES,
        };
        let device = Device {
            registrar: None,
            late_at: None,
            spares: Spares::new(most)?,
        };
        let state = State {
            held: RBTree::new(),
            offered: 0,
            next: 0,
            stale: Fifo::new(),
            pd: Some(pd.clone()),
        };
        Arc::pin_init(
            pin_init!(Self {
                id: pd.device().id(),
                reads_run_on: caps.reads_run_on,
                mapped_at_once,
                queue: queue.clone(),
                device <- new_mutex!(device, "Regions::device"),
                state <- new_spinlock_bh!(state, "Regions::state"),
                sweep <- new_work!("Regions::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Registers memory of a program for peers, by way of a local address of the device if it was not asked before.
    ///
    /// Fails as [`Spares::room_for`] does, with ENODEV if the device goes or has not the address, EIO or ETIMEDOUT if it
    /// fails, ENOMEM. Process context; sleeps.
    pub(super) fn register(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<Held<Cookie>> {
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let region = self.region(addr, mapping, access)?;
        let cookie = Cookie {
            rkey: region.rkey(),
            offset: region.offset(),
        };
        self.keep(Memory::Region(region), cookie, None)
    }

    /// Up to an address that is a multiple of so many bytes, a power of two, memory that [`Self::map`] is for fits into a
    /// region.
    pub(super) fn mapped_at_once(&self) -> u64 {
        self.mapped_at_once
    }

    /// Has the device see memory of a program, for an operation of this node's. `then` is dropped when the memory is
    /// released. Fails as [`Self::register`] does. Process context; sleeps.
    pub(super) fn map(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
        then: Arc<dyn Released>,
    ) -> Result<(Held<()>, Pieces)> {
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let few = match access {
            // The peer needs a key.
            Access::Sink { by_peer: true } => None,
            _ => LentMapping::new(&mapping)?,
        };
        let (memory, pieces) = match few {
            Some((lent, pieces)) => (Memory::Lent(lent), pieces),
            None => {
                let region = self.region(addr, mapping, access)?;
                let pieces = region.pieces()?;
                (Memory::Region(region), pieces)
            }
        };
        Ok((self.keep(memory, (), Some(then))?, pieces))
    }

    /// Fails with ENODEV if the device goes.
    fn pd(&self) -> Result<Arc<Pd>> {
        self.state.lock().pd.clone().ok_or(ENODEV)
    }

    /// Makes a region. Fails with ETIMEDOUT at once if that has taken too long a moment ago. Sleeps.
    fn region(&self, addr: &SocketAddr, mapping: Arc<Mapping>, access: Access) -> Result<Region> {
        // Without the lock.
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        if let Some((since, by)) = &device.late_at {
            // Another address may lead to the device.
            if by == addr && time::monotonic_ns().saturating_sub(*since) < REST_NS {
                return Err(ETIMEDOUT);
            }
        }
        let made = self.make(&mut device, addr, mapping, access, &mut released);
        device.late_at = matches!(&made, Err(error) if *error == ETIMEDOUT)
            .then(|| (time::monotonic_ns(), *addr));
        made
    }

    /// Makes a region, at the second attempt if need be. Sleeps.
    fn make(
        &self,
        device: &mut Device,
        addr: &SocketAddr,
        mapping: Arc<Mapping>,
        access: Access,
        released: &mut Fifo<Kept>,
    ) -> Result<Region> {
        let pages = mapping.page_count();
        let pd = self.pd()?;
        let size = device.spares.room_for(pages)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mr = match device.spares.take(pages) {
                Some(mr) => mr,
                None => match Mr::new(&pd, size) {
                    Ok(mr) => mr,
                    Err(_) => self.make_room(device, &pd, pages, size, released)?,
                },
            };
            let registrar = device.registrar(&self.queue, &pd, addr)?;
            match registrar.qp().register(mr, mapping.clone(), access) {
                // It may have failed long ago; another one is made then.
                Err(_) if attempts < 2 && registrar.qp().is_closed() => {}
                result => return result,
            }
        }
    }

    /// The device has no room for another one: takes one that is about to go, or gives back all that are kept, which may
    /// be of the other kind, and makes one. Sleeps.
    fn make_room(
        &self,
        device: &mut Device,
        pd: &Arc<Pd>,
        pages: usize,
        size: u32,
        released: &mut Fifo<Kept>,
    ) -> Result<Mr> {
        device.invalidate(self.take_stale(), released);
        if let Some(mr) = device.spares.take(pages) {
            return Ok(mr);
        }
        device.spares.clear();
        Mr::new(pd, size)
    }

    /// Keeps memory until what this returns is dropped. May sleep.
    fn keep<T>(
        self: &Arc<Self>,
        memory: Memory,
        what: T,
        then: Option<Arc<dyn Released>>,
    ) -> Result<Held<T>> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let kept = Kept {
            memory,
            spoiled: false,
            then,
        };
        let kept = Item::new(kept, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if state.pd.is_none() {
            drop(state);
            return Err(ENODEV);
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.offered = state.offered.wrapping_add(kept.is_offered().into());
        // The number is new.
        state.held.insert(place.into_node(number, kept));
        drop(state);
        Ok(Held {
            home: self.clone(),
            number,
            spoiled: Atomic::new(false),
            what,
        })
    }

    /// Whether peers may use memory of programs. Any context but a hard interrupt.
    pub(super) fn offer_memory(&self) -> bool {
        self.state.lock().offered > 0
    }

    fn take_stale(&self) -> Fifo<Kept> {
        let mut stale = Fifo::new();
        stale.append(&mut self.state.lock().stale);
        stale
    }

    /// Releases stale memory, and tells who waits for that. Sleeps.
    fn sweep(&self) {
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        let stale = self.take_stale();
        device.invalidate(stale, &mut released);
        drop(device);
        drop(released);
    }

    /// The device goes: nothing of it is left when this returns, and nothing can be registered any more. Sleeps.
    pub(super) fn close(&self) {
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        let mut state = self.state.lock();
        let pd = state.pd.take();
        let mut held = core::mem::replace(&mut state.held, RBTree::new());
        state.offered = 0;
        drop(state);
        let stale = self.take_stale();
        device.invalidate(stale, &mut released);
        device.spares.clear();
        device.registrar = None;
        drop(device);
        // Regions are destroyed.
        for kept in held.values_mut() {
            drop(kept.release());
        }
        drop(held);
        drop(released);
        drop(pd);
    }
}

/// What a program or an operation holds of the memory. May be dropped in any context but a hard interrupt, without locks
/// of this module.
pub(super) struct Held<T> {
    home: Arc<Regions>,
    number: u64,
    spoiled: Atomic<bool>,
    what: T,
}

impl RemoteMemory for Held<Cookie> {
    fn cookie(&self) -> Cookie {
        self.what
    }

    fn home(&self) -> Arc<dyn Home> {
        self.home.clone()
    }
}

impl Home for Regions {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn settle(&self) {
        self.sweep();
    }

    fn is_gone(&self) -> bool {
        self.state.lock().pd.is_none()
    }
}

impl LocalMemory for Held<()> {
    fn spoil(&self) {
        self.spoiled.store(true, Relaxed);
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let mut state = self.home.state.lock();
        let Some(mut kept) = state.held.remove(&self.number) else {
            // It went with its device.
            return;
        };
        kept.spoiled = self.home.reads_run_on && self.spoiled.load(Relaxed);
        state.offered = state.offered.wrapping_sub(kept.is_offered().into());
        state.stale.push_back(kept);
        drop(state);
        self.home.queue.enqueue::<_, 0>(self.home.clone());
    }
}
