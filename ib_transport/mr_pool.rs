// SPDX-License-Identifier: GPL-2.0

//! The memory of programs that a device uses: regions for peers, and what operations of this node's take from and
//! bring to.
//!
//! What a program or an operation has is an [`MrHandle`]. When that is dropped, in whatever context, its memory becomes
//! stale: peers may still use a region for a moment, until the device's worker has invalidated it, together with
//! others. The memory is released then, and the [`Mr`] kept for the next region.
//!
//! When the device goes, all goes with it; what is held of it stands for nothing from then on.

use super::{
    endpoint_list::EndpointList,
    mr_entry::{MrEntry, MrMemory},
    mr_free_list::MrFreeList,
    read_quiesce::ReadQuiesceQueue,
    reg_qp::RegQp,
    tunables::IbTunables,
};
use crate::conn::{LocalMemory, MrDevice, OnRelease, RemoteMemory};
use crate::kapi::{
    pin::PinnedMemory,
    rdma::{Access, DeviceId, LocalDmaMapping, Mapping, Mr, Pd, Pieces, Region},
    sync::{new_spinlock_bh, Fifo, Item, OwnedQueue, SpinLockBh},
    task::without_io,
    time,
};
use crate::proto::rdma::{Cookie, MAX_BYTES};
use core::net::SocketAddr;
use kernel::{
    new_condvar, new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, CondVar, CondVarTimeoutResult, Mutex, MutexGuard,
    },
    time::msecs_to_jiffies,
    workqueue::{new_work, Work, WorkItem},
};

/// How long a device is left alone that did not answer itself, in nanoseconds: so one of those who wait for it finds that
/// out, and not one after the other.
const REST_NS: u64 = 5_000_000_000;

/// How long who gives a region back waits for answers to reads from it, in nanoseconds.
const FENCE_NS: u64 = 1_000_000_000;

/// What one caller at a time uses.
struct MrPoolInner {
    /// Made when it is needed for the first time, and again when it has failed.
    registrar: Option<RegQp>,
    /// When it was given up because it took too long, on the monotonic clock, and by way of which address.
    late_at: Option<(u64, SocketAddr)>,
    spares: MrFreeList<Mr>,
    fences: ReadQuiesceQueue,
}

impl MrPoolInner {
    /// The registrar, which `addr` leads to if there is none yet. Sleeps.
    fn registrar(
        &mut self,
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        users: &Arc<EndpointList>,
        addr: &SocketAddr,
    ) -> Result<&RegQp> {
        if self
            .registrar
            .as_ref()
            .is_some_and(|it| it.qp().is_closed())
        {
            self.registrar = None;
        }
        let registrar = match self.registrar.take() {
            Some(usable) => usable,
            None => RegQp::make(queue, pd, users, addr)?,
        };
        Ok(self.registrar.insert(registrar))
    }

    /// Releases memory, and keeps what can be used again. Who waits for it is added to `released`. Sleeps.
    fn invalidate(&mut self, mut stale: Fifo<MrEntry>, released: &mut Fifo<MrEntry>) {
        let mut some: KVec<Region> = KVec::new();
        // Whose they are.
        let mut whose = Fifo::new();
        loop {
            let next = stale.pop_front();
            let last = next.is_none();
            if let Some(mut kept) = next {
                // Without memory for it, a region goes by itself.
                let batched = !kept.spoiled && some.reserve(1, GFP_KERNEL).is_ok();
                match kept.release() {
                    Some(region) if batched => {
                        drop(some.push_within_capacity(region));
                        whose.push_back(kept);
                    }
                    Some(region) => self.end(region, kept, released),
                    None => released.push_back(kept),
                }
            }
            if some.len() < BATCH && !last {
                continue;
            }
            if let Some(registrar) = &self.registrar {
                // Those that are not invalidated by this are destroyed.
                let _ = registrar.qp().invalidate(&some);
            }
            for region in some.drain_all() {
                let Some(mut kept) = whose.pop_front() else {
                    break;
                };
                if !kept.read_from {
                    self.reuse(region);
                    released.push_back(kept);
                } else if region.is_invalid() {
                    kept.memory = MrMemory::Region(region);
                    self.fences.add(kept);
                } else {
                    self.end(region, kept, released);
                }
            }
            if last {
                break;
            }
        }
    }

    /// Ends a region that was not invalidated. Who waits for its memory is added to `released`. Sleeps.
    fn end(&mut self, region: Region, mut kept: Item<MrEntry>, released: &mut Fifo<MrEntry>) {
        let mapping = region.end();
        if kept.read_from {
            kept.memory = MrMemory::Mapped { _mapping: mapping };
            self.fences.add(kept);
        } else {
            drop(mapping);
            released.push_back(kept);
        }
    }

    /// Releases the memory of an invalid region, and keeps the rest if it can be used again. Sleeps.
    fn reuse(&mut self, region: Region) {
        let pages = region.pages();
        if let Some(mr) = region.release() {
            drop(self.spares.keep(pages, mr));
        }
    }

    /// Releases what no read is answered from any more. Who waits for it is added to `released`. Sleeps.
    fn pass(&mut self, users: &EndpointList, released: &mut Fifo<MrEntry>) {
        let mut passed = self.fences.pass(users);
        while let Some(mut kept) = passed.pop_front() {
            if let Some(region) = kept.release() {
                self.reuse(region);
            }
            released.push_back(kept);
        }
    }
}

/// How many are invalidated at once.
const BATCH: usize = 32;

/// What changes in any context.
struct MrPoolState {
    /// What is held, by number.
    held: RBTree<u64, Item<MrEntry>>,
    /// How many of these peers may use.
    offered: usize,
    next: u64,
    stale: Fifo<MrEntry>,
    /// `None` when the device goes: it waits for all who have this.
    pd: Option<Arc<Pd>>,
}

/// The regions of a device.
#[pin_data]
pub(super) struct MrPool {
    id: DeviceId,
    /// See [`DeviceCaps`](crate::kapi::rdma::DeviceCaps::reads_run_on).
    reads_run_on: bool,
    mapped_at_once: u64,
    users: Arc<EndpointList>,
    tunables: Arc<IbTunables>,
    queue: Arc<OwnedQueue>,
    /// Regions wait for what the queue pairs send.
    fencing: Atomic<bool>,
    /// Some have gone.
    #[pin]
    passed: CondVar,
    /// Before `state`.
    #[pin]
    device: Mutex<MrPoolInner>,
    #[pin]
    state: SpinLockBh<MrPoolState>,
    #[pin]
    sweep: Work<MrPool>,
}

kernel::impl_has_work! {
    impl HasWork<Self> for MrPool { self.sweep }
}

impl WorkItem for MrPool {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.sweep();
        });
    }
}

impl MrPool {
    /// Has none, and asks the device for none before [`Self::register`]. May sleep.
    pub(super) fn new(
        pd: &Arc<Pd>,
        users: &Arc<EndpointList>,
        tunables: &Arc<IbTunables>,
        queue: &Arc<OwnedQueue>,
    ) -> Result<Arc<Self>> {
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
        let device = MrPoolInner {
            registrar: None,
            late_at: None,
            spares: MrFreeList::new(most)?,
            fences: ReadQuiesceQueue::new(),
        };
        let state = MrPoolState {
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
                users: users.clone(),
                tunables: tunables.clone(),
                queue: queue.clone(),
                fencing: Atomic::new(false),
                passed <- new_condvar!("MrPool::passed"),
                device <- new_mutex!(device, "MrPool::device"),
                state <- new_spinlock_bh!(state, "MrPool::state"),
                sweep <- new_work!("MrPool::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the registrar that registers memory from now on, until it fails. Sleeps.
    #[cfg(rds_kunit)]
    pub(super) fn set_registrar(&self, registrar: RegQp) {
        let before = self.device.lock().registrar.replace(registrar);
        drop(before);
    }

    /// Registers memory of a program for peers, by way of a local address of the device if it was not asked before.
    ///
    /// Fails as [`MrFreeList::room_for`] does, with ENODEV if the device goes or has not the address, EIO or ETIMEDOUT if it
    /// fails, ENOMEM. Process context; sleeps.
    pub(super) fn register(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<MrHandle<Cookie>> {
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let region = self.region(addr, mapping, access)?;
        let cookie = Cookie {
            rkey: region.rkey(),
            offset: region.offset(),
        };
        self.keep(MrMemory::Region(region), cookie, None)
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
        then: Arc<dyn OnRelease>,
    ) -> Result<(MrHandle<()>, Pieces)> {
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let few = match access {
            // The peer needs a key.
            Access::Sink { by_peer: true } => None,
            _ => LocalDmaMapping::new(&mapping)?,
        };
        let (memory, pieces) = match few {
            Some((lent, pieces)) => (MrMemory::Lent(lent), pieces),
            None => {
                let region = self.region(addr, mapping, access)?;
                let pieces = region.pieces()?;
                (MrMemory::Region(region), pieces)
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
        device: &mut MutexGuard<'_, MrPoolInner>,
        addr: &SocketAddr,
        mapping: Arc<Mapping>,
        access: Access,
        released: &mut Fifo<MrEntry>,
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
            let registrar = device.registrar(&self.queue, &pd, &self.users, addr)?;
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
        device: &mut MutexGuard<'_, MrPoolInner>,
        pd: &Arc<Pd>,
        pages: usize,
        size: u32,
        released: &mut Fifo<MrEntry>,
    ) -> Result<Mr> {
        let until = time::monotonic_ns().saturating_add(FENCE_NS);
        loop {
            self.release_stale(device, released);
            if let Some(mr) = device.spares.take(pages) {
                return Ok(mr);
            }
            let goes_on = !device.fences.is_empty() && self.await_pass(device, until);
            // The device may have gone while nobody had the lock.
            self.pd()?;
            if !goes_on {
                break;
            }
        }
        device.spares.clear();
        Mr::new(pd, size)
    }

    /// Keeps memory until what this returns is dropped. May sleep.
    fn keep<T>(
        self: &Arc<Self>,
        memory: MrMemory,
        what: T,
        then: Option<Arc<dyn OnRelease>>,
    ) -> Result<MrHandle<T>> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let kept = MrEntry {
            memory,
            spoiled: false,
            read_from: self.reads_run_on && then.is_none(),
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
        Ok(MrHandle {
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

    fn take_stale(&self) -> Fifo<MrEntry> {
        let mut stale = Fifo::new();
        stale.append(&mut self.state.lock().stale);
        stale
    }

    /// Releases stale memory, and tells who waits for that. Sleeps.
    fn sweep(&self) {
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        self.release_stale(&mut device, &mut released);
        drop(device);
        drop(released);
    }

    /// Releases stale memory. Who waits for it is added to `released`. Sleeps.
    fn release_stale(&self, device: &mut MrPoolInner, released: &mut Fifo<MrEntry>) {
        let before = released.len();
        device.invalidate(self.take_stale(), released);
        if !self.reads_run_on {
            return;
        }
        // Before anything is sent for it.
        self.fencing.store(!device.fences.is_empty(), Relaxed);
        device.pass(&self.users, released);
        self.fencing.store(!device.fences.is_empty(), Relaxed);
        device.fences.look(&self.users, self.tunables.patience());
        if released.len() != before {
            self.passed.notify_all();
        }
    }

    /// Waits until something has been released, up to a time on the monotonic clock, in nanoseconds, and not after a signal.
    /// False if the wait is over. Sleeps without the lock.
    fn await_pass(&self, device: &mut MutexGuard<'_, MrPoolInner>, until: u64) -> bool {
        let left = until
            .saturating_sub(time::monotonic_ns())
            .div_ceil(1_000_000);
        let left = msecs_to_jiffies(left.try_into().unwrap_or(u32::MAX));
        let result = self.passed.wait_interruptible_timeout(device, left);
        matches!(result, CondVarTimeoutResult::Woken { .. })
    }

    /// Something that was posted is sent, or a queue pair has gone, or time has. Any context.
    #[inline]
    pub(super) fn note_progress(self: &Arc<Self>) {
        if self.fencing.load(Relaxed) {
            self.queue.enqueue::<_, 0>(self.clone());
        }
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
        // Nor is a read answered any more.
        device.pass(&self.users, &mut released);
        self.fencing.store(false, Relaxed);
        self.passed.notify_all();
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
pub(super) struct MrHandle<T> {
    home: Arc<MrPool>,
    number: u64,
    spoiled: Atomic<bool>,
    what: T,
}

impl RemoteMemory for MrHandle<Cookie> {
    fn cookie(&self) -> Cookie {
        self.what
    }

    fn home(&self) -> Arc<dyn MrDevice> {
        self.home.clone()
    }
}

impl MrDevice for MrPool {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn settle(&self) {
        let until = time::monotonic_ns().saturating_add(FENCE_NS);
        let mut wanted = None;
        loop {
            self.sweep();
            let mut device = self.device.lock();
            // What comes later is not waited for.
            let wanted = *wanted.get_or_insert(device.fences.wanted());
            if device.fences.over() >= wanted || !self.await_pass(&mut device, until) {
                return;
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.state.lock().pd.is_none()
    }
}

impl LocalMemory for MrHandle<()> {
    fn spoil(&self) {
        self.spoiled.store(true, Relaxed);
    }
}

impl<T> Drop for MrHandle<T> {
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
