// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that a device uses: regions for peers, and memory of local operations.
//!
//! Programs and operations hold an [`MrHandle`]. When that is dropped, in any context except hard
//! interrupt, its memory becomes stale. Peers may use a region until the device's worker has
//! invalidated it, together with others. Then the memory is released, and the [`Mr`] is kept for
//! reuse. Removal of the device releases everything; the remaining handles are without effect.

use super::{
    super::{
        endpoint_list::EndpointList,
        quirks::ReadQuiesceQueue,
        IbTunables, //
    },
    entry::{
        MrEntry,
        MrMemory, //
    },
    free_list::MrFreeList,
    pool_inner::MrPoolInner, //
};
use crate::{
    kapi::{
        pin::PinnedMemory,
        rdma::{
            Access,
            DeviceId,
            LocalDmaMapping,
            Mapping,
            Mr,
            Pd,
            Pieces,
            Region, //
        },
        sync::{
            new_spinlock_bh,
            Fifo,
            Item,
            OwnedQueue,
            SpinLockBh, //
        },
        task::without_io, //
    },
    proto::rdma::{
        Cookie,
        MAX_BYTES, //
    },
    rdma_mem::{
        LocalMemory,
        MrDevice,
        OnRelease,
        RemoteMemory, //
    },
    trace::{
        self,
        TracedMr, //
    }, //
};
use core::net::SocketAddr;
use kernel::{
    new_condvar,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        CondVarTimeoutResult,
        Mutex,
        MutexGuard, //
    },
    time::{
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// Back-off after a registration timed out. Until it ends, callers fail at once instead of timing
/// out one after another.
const RETRY_DELAY: Delta = Delta::from_secs(5);

/// Maximum wait for READ responses from a released region.
const FENCE_TIMEOUT: Delta = Delta::from_secs(1);

/// State that changes in any context.
struct MrPoolState {
    /// Entries in use, by number.
    held: RBTree<u64, Item<MrEntry>>,
    /// Number of these entries that are offered to peers.
    offered: usize,
    next: u64,
    pending_invalidate: Fifo<MrEntry>,
    /// `None` if the device is removed, which waits for all references.
    pd: Option<Arc<Pd>>,
}

/// The regions of a device.
#[pin_data]
pub(crate) struct MrPool {
    id: DeviceId,
    /// See [`DeviceCaps`](crate::kapi::rdma::DeviceCaps::reads_run_on).
    reads_run_on: bool,
    max_contiguous_map: u64,
    endpoints: Arc<EndpointList>,
    tunables: Arc<IbTunables>,
    queue: Arc<OwnedQueue>,
    /// Entries wait for READ responses, so progress has to wake the worker.
    quiescing: Atomic<bool>,
    /// Notified when entries were released.
    #[pin]
    passed: CondVar,
    /// Locked before `state`.
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
    /// Creates an empty pool. The device is not used before [`Self::register`] or [`Self::map`].
    /// May sleep.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        endpoints: &Arc<EndpointList>,
        tunables: &Arc<IbTunables>,
        queue: &Arc<OwnedQueue>,
    ) -> Result<Arc<Self>> {
        let caps = pd.device().caps();
        let most = if caps.fast_registration {
            caps.max_fast_reg_pages
        } else {
            0
        };
        let max_contiguous_map = match most.checked_ilog2() {
            Some(log) => MAX_BYTES.min((PAGE_SIZE as u64) << log),
            None => MAX_BYTES,
        };
        let device = MrPoolInner {
            reg_qp: None,
            late_at: None,
            free_list: MrFreeList::new(most)?,
            quiesces: ReadQuiesceQueue::new(),
        };
        let state = MrPoolState {
            held: RBTree::new(),
            offered: 0,
            next: 0,
            pending_invalidate: Fifo::new(),
            pd: Some(pd.clone()),
        };
        Arc::pin_init(
            pin_init!(Self {
                id: pd.device().id(),
                reads_run_on: caps.reads_run_on,
                max_contiguous_map,
                endpoints: endpoints.clone(),
                tunables: tunables.clone(),
                queue: queue.clone(),
                quiescing: Atomic::new(false),
                passed <- new_condvar!("MrPool::passed"),
                device <- new_mutex!(device, "MrPool::device"),
                state <- new_spinlock_bh!(state, "MrPool::state"),
                sweep <- new_work!("MrPool::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the registration queue pair, which is used until it fails. Sleeps.
    #[cfg(rds_kunit)]
    pub(crate) fn set_registrar(&self, reg_qp: super::reg_qp::RegQp) {
        let before = self.device.lock().reg_qp.replace(reg_qp);
        drop(before);
    }

    /// Registers memory of a program for peers. If there is no registration queue pair, it is
    /// connected through `addr`, a local address of the device. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// - The errors of [`MrFreeList::room_for`].
    /// - `ENODEV` if the device is being removed or does not have the address.
    /// - `EIO`, `ETIMEDOUT` if the device fails.
    /// - `ENOMEM`
    pub(crate) fn register(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<MrHandle<Cookie>> {
        let bytes = memory.len();
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let region = self.region(addr, mapping, access)?;
        let traced = TracedMr::new(addr.ip(), region.rkey(), bytes, true);
        let cookie = Cookie {
            rkey: region.rkey(),
            offset: region.offset(),
        };
        self.keep(MrMemory::Region(region), cookie, None, traced)
    }

    /// Returns the boundary in bytes, a power of two, that memory for one [`Self::map`] must not
    /// cross.
    pub(crate) fn max_contiguous_map(&self) -> u64 {
        self.max_contiguous_map
    }

    /// Maps memory of a program for a local operation. `then` is dropped when the memory is
    /// released. Fails as [`Self::register`] does. Process context; sleeps.
    pub(crate) fn map(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
        then: Arc<dyn OnRelease>,
    ) -> Result<(MrHandle<()>, Pieces)> {
        let bytes = memory.len();
        let mapping = Mapping::new(&self.pd()?, memory, access)?;
        let mapping = Arc::new(mapping, GFP_KERNEL_ACCOUNT)?;
        let few = match access {
            // The peer needs a key.
            Access::Sink { by_peer: true } => None,
            _ => LocalDmaMapping::new(&mapping)?,
        };
        let (memory, pieces, rkey) = match few {
            Some((mapping, pieces)) => (MrMemory::LocalMapping(mapping), pieces, 0),
            None => {
                let region = self.region(addr, mapping, access)?;
                let (pieces, rkey) = (region.pieces()?, region.rkey());
                (MrMemory::Region(region), pieces, rkey)
            }
        };
        let traced = TracedMr::new(addr.ip(), rkey, bytes, false);
        Ok((self.keep(memory, (), Some(then), traced)?, pieces))
    }

    /// Returns the protection domain, or `ENODEV` if the device is being removed.
    fn pd(&self) -> Result<Arc<Pd>> {
        self.state.lock().pd.clone().ok_or(ENODEV)
    }

    /// Registers a region. Returns `ETIMEDOUT` at once during the back-off. Sleeps.
    fn region(&self, addr: &SocketAddr, mapping: Arc<Mapping>, access: Access) -> Result<Region> {
        // Dropped after the lock.
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        if let Some((since, by)) = &device.late_at {
            // Another address may lead to the device.
            if by == addr && since.elapsed() < RETRY_DELAY {
                return Err(ETIMEDOUT);
            }
        }
        let made = self.make(&mut device, addr, mapping, access, &mut released);
        device.late_at =
            matches!(&made, Err(error) if *error == ETIMEDOUT).then(|| (Instant::now(), *addr));
        made
    }

    /// Registers a region, with a second attempt if the queue pair had failed. Sleeps.
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
        let size = device.free_list.room_for(pages)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mr = match device.free_list.take(pages) {
                Some(mr) => mr,
                None => match Mr::new(&pd, size) {
                    Ok(mr) => mr,
                    Err(_) => self.make_room(device, &pd, pages, size, released)?,
                },
            };
            let reg_qp = device.reg_qp(&self.queue, &pd, &self.endpoints, addr)?;
            match reg_qp.qp().register(mr, mapping.clone(), access) {
                // The queue pair may have failed long ago. The second attempt creates another one.
                Err(_) if attempts < 2 && reg_qp.qp().is_closed() => {}
                result => return result,
            }
        }
    }

    /// Gets an MR although the device has no room for more. Takes one that is about to be released.
    /// Otherwise destroys all free ones, which may be of the other size, and allocates one. Sleeps.
    fn make_room(
        &self,
        device: &mut MutexGuard<'_, MrPoolInner>,
        pd: &Arc<Pd>,
        pages: usize,
        size: u32,
        released: &mut Fifo<MrEntry>,
    ) -> Result<Mr> {
        let begun = Instant::now();
        loop {
            self.release_pending_invalidate(device, released);
            if let Some(mr) = device.free_list.take(pages) {
                return Ok(mr);
            }
            let goes_on = !device.quiesces.is_empty() && self.await_pass(device, begun);
            // The device may have been removed while the wait released the lock.
            self.pd()?;
            if !goes_on {
                break;
            }
        }
        device.free_list.clear();
        Mr::new(pd, size)
    }

    /// Keeps memory until the returned handle is dropped. May sleep.
    fn keep<T>(
        self: &Arc<Self>,
        memory: MrMemory,
        what: T,
        then: Option<Arc<dyn OnRelease>>,
        traced: TracedMr,
    ) -> Result<MrHandle<T>> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let entry = MrEntry {
            memory,
            poisoned: false,
            read_from: self.reads_run_on && then.is_none(),
            then,
            traced: None,
        };
        let mut entry = Item::new(entry, GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        if state.pd.is_none() {
            drop(state);
            return Err(ENODEV);
        }
        trace::mr_registered(entry.traced.insert(traced));
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.offered = state.offered.wrapping_add(entry.is_offered().into());
        // The number is new.
        state.held.insert(place.into_node(number, entry));
        drop(state);
        Ok(MrHandle {
            mr_device: self.clone(),
            number,
            poisoned: Atomic::new(false),
            what,
        })
    }

    /// Returns `true` if peers may use memory of programs. Any context except hard interrupt.
    pub(crate) fn offer_memory(&self) -> bool {
        self.state.lock().offered > 0
    }

    fn take_pending_invalidate(&self) -> Fifo<MrEntry> {
        let mut pending_invalidate = Fifo::new();
        pending_invalidate.append(&mut self.state.lock().pending_invalidate);
        pending_invalidate
    }

    /// Releases stale memory, and drops the observers of the release. Sleeps.
    fn sweep(&self) {
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        self.release_pending_invalidate(&mut device, &mut released);
        drop(device);
        drop(released);
    }

    /// Releases stale memory, and appends the entries to `released`. Sleeps.
    fn release_pending_invalidate(&self, device: &mut MrPoolInner, released: &mut Fifo<MrEntry>) {
        let before = released.len();
        device.invalidate(self.take_pending_invalidate(), released);
        if !self.reads_run_on {
            return;
        }
        // Before sends are posted, whose completions need the flag.
        self.quiescing.store(!device.quiesces.is_empty(), Relaxed);
        device.pass(&self.endpoints, released);
        self.quiescing.store(!device.quiesces.is_empty(), Relaxed);
        device
            .quiesces
            .check(&self.endpoints, self.tunables.timeout());
        if released.len() != before {
            self.passed.notify_all();
        }
    }

    /// Waits without the lock until entries are released. Returns `false` after a signal, or if
    /// [`FENCE_TIMEOUT`] has passed since `begun`. Sleeps.
    fn await_pass(
        &self,
        device: &mut MutexGuard<'_, MrPoolInner>,
        begun: Instant<Monotonic>,
    ) -> bool {
        let left = FENCE_TIMEOUT - begun.elapsed();
        let left = left.as_micros_ceil().max(0).unsigned_abs().div_ceil(1_000);
        let left = msecs_to_jiffies(left.try_into().unwrap_or(u32::MAX));
        let result = self.passed.wait_interruptible_timeout(device, left);
        matches!(result, CondVarTimeoutResult::Woken { .. })
    }

    /// Wakes the worker if entries wait. Called after a completed send, the end of a queue pair, or
    /// a period. Any context.
    #[inline]
    pub(crate) fn note_progress(self: &Arc<Self>) {
        if self.quiescing.load(Relaxed) {
            self.queue.enqueue::<_, 0>(self.clone());
        }
    }

    /// Handles removal of the device: releases everything and rejects new registrations. Sleeps.
    pub(crate) fn close(&self) {
        let mut released = Fifo::new();
        let mut device = self.device.lock();
        let mut state = self.state.lock();
        let pd = state.pd.take();
        let mut held = core::mem::replace(&mut state.held, RBTree::new());
        state.offered = 0;
        drop(state);
        let pending_invalidate = self.take_pending_invalidate();
        device.invalidate(pending_invalidate, &mut released);
        // All queue pairs are gone, so no READ response is in progress.
        device.pass(&self.endpoints, &mut released);
        self.quiescing.store(false, Relaxed);
        self.passed.notify_all();
        device.free_list.clear();
        device.reg_qp = None;
        drop(device);
        // Regions that are still in use are destroyed.
        for entry in held.values_mut() {
            drop(entry.release());
        }
        drop(held);
        drop(released);
        drop(pd);
    }
}

/// Handle of a program or an operation to its memory. Dropped in any context except hard interrupt,
/// without locks of this module.
pub(crate) struct MrHandle<T> {
    mr_device: Arc<MrPool>,
    number: u64,
    poisoned: Atomic<bool>,
    what: T,
}

impl RemoteMemory for MrHandle<Cookie> {
    fn cookie(&self) -> Cookie {
        self.what
    }

    fn mr_device(&self) -> Arc<dyn MrDevice> {
        self.mr_device.clone()
    }
}

impl MrDevice for MrPool {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn flush(&self) {
        let begun = Instant::now();
        let mut wanted = None;
        loop {
            self.sweep();
            let mut device = self.device.lock();
            // Entries that are added later are not waited for.
            let wanted = *wanted.get_or_insert(device.quiesces.wanted());
            if device.quiesces.over() >= wanted || !self.await_pass(&mut device, begun) {
                return;
            }
        }
    }

    fn is_removed(&self) -> bool {
        self.state.lock().pd.is_none()
    }
}

impl LocalMemory for MrHandle<()> {
    fn poison(&self) {
        self.poisoned.store(true, Relaxed);
    }
}

impl<T> Drop for MrHandle<T> {
    fn drop(&mut self) {
        let mut state = self.mr_device.state.lock();
        let Some(mut entry) = state.held.remove(&self.number) else {
            // The entry was released with its device.
            return;
        };
        entry.poisoned = self.mr_device.reads_run_on && self.poisoned.load(Relaxed);
        state.offered = state.offered.wrapping_sub(entry.is_offered().into());
        state.pending_invalidate.push_back(entry);
        drop(state);
        self.mr_device.queue.enqueue::<_, 0>(self.mr_device.clone());
    }
}
