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
    pool_inner::{
        destroy_free,
        MrPoolInner,
        MrReleases, //
    },
    reg_qp::RegQp, //
};
use crate::{
    cm::laddr::AddrOwners,
    kapi::{
        errno::Errno,
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

/// Maximum number of attempts of a registration whose own work requests fail.
const MOST_FAILURES: u32 = 2;
/// Maximum number of attempts of a registration, including those that end because the work request
/// of another one fails.
const MOST_ATTEMPTS: u32 = 4;

/// Number of regions that wait for invalidation from which registrations invalidate them first.
pub(crate) const MOST_PENDING: usize = 256;

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
    /// Number of entries that were taken from there, and are being invalidated.
    invalidating: usize,
    /// `None` if the device is removed, which waits for all references.
    pd: Option<Arc<Pd>>,
}

impl MrPoolState {
    /// Returns the number of entries that are to be released, or are being released.
    fn unreleased(&self) -> usize {
        self.pending_invalidate
            .len()
            .saturating_add(self.invalidating)
    }
}

/// The regions of a device.
#[pin_data]
pub(crate) struct MrPool {
    id: DeviceId,
    /// See [`DeviceCaps`](crate::kapi::rdma::DeviceCaps::reads_run_on).
    reads_run_on: bool,
    max_contiguous_map: u64,
    endpoints: Arc<EndpointList>,
    owners: Arc<AddrOwners>,
    tunables: Arc<IbTunables>,
    queue: Arc<OwnedQueue>,
    /// Entries wait for READ responses, so progress has to wake the worker.
    quiescing: Atomic<bool>,
    /// Notified when entries were released.
    #[pin]
    passed: CondVar,
    /// Locked before `device`. Registrations take it only if the device has no room for an MR, or
    /// many regions wait for invalidation.
    #[pin]
    releases: Mutex<MrReleases>,
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
        owners: &Arc<AddrOwners>,
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
        };
        let releases = MrReleases {
            quiesces: ReadQuiesceQueue::new(),
        };
        let state = MrPoolState {
            held: RBTree::new(),
            offered: 0,
            next: 0,
            pending_invalidate: Fifo::new(),
            invalidating: 0,
            pd: Some(pd.clone()),
        };
        Arc::pin_init(
            pin_init!(Self {
                id: pd.device().id(),
                reads_run_on: caps.reads_run_on,
                max_contiguous_map,
                endpoints: endpoints.clone(),
                owners: owners.clone(),
                tunables: tunables.clone(),
                queue: queue.clone(),
                quiescing: Atomic::new(false),
                passed <- new_condvar!("MrPool::passed"),
                releases <- new_mutex!(releases, "MrPool::releases"),
                device <- new_mutex!(device, "MrPool::device"),
                state <- new_spinlock_bh!(state, "MrPool::state"),
                sweep <- new_work!("MrPool::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the registration queue pair, which is used until it fails. Sleeps.
    #[cfg(rds_kunit)]
    pub(crate) fn set_registrar(&self, reg_qp: RegQp) -> Result {
        let reg_qp = Arc::new(reg_qp, GFP_KERNEL)?;
        let before = self.device.lock().reg_qp.replace(reg_qp);
        drop(before);
        Ok(())
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

    /// Returns the protection domain.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is being removed.
    fn pd(&self) -> Result<Arc<Pd>> {
        self.state.lock().pd.clone().ok_or(ENODEV)
    }

    /// Registers a region, with further attempts if the queue pair fails. Waits for the device
    /// without locks. Sleeps.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`, at once, during the back-off.
    /// - Any error of the registration.
    fn region(&self, addr: &SocketAddr, mapping: Arc<Mapping>, access: Access) -> Result<Region> {
        // Dropped without locks.
        let mut released = Fifo::new();
        let pages = mapping.page_count();
        let pd = self.pd()?;
        // Registrations run in parallel, and must not outrun the one task that invalidates.
        if self.state.lock().unreleased() >= MOST_PENDING {
            let mut releases = self.releases.lock();
            self.release_pending_invalidate(&mut releases, &mut released);
        }
        let mut attempts = 0u32;
        let mut failures = 0u32;
        loop {
            let (reg_qp, free, size) = self.prepare(addr, pages)?;
            let mr = match free {
                Some(mr) => mr,
                None => match Mr::new(&pd, size) {
                    Ok(mr) => mr,
                    Err(_) => self
                        .make_room(&pd, pages, size, &mut released)
                        .inspect_err(|error| self.device.lock().note_timeout(addr, *error))?,
                },
            };
            let error = match reg_qp.qp().register(mr, mapping.clone(), access) {
                Ok(region) => return Ok(region),
                Err(error) => error,
            };
            let device_addr = trace::Conn::local_ip(addr.ip());
            trace::error(&device_addr, "registration", error.to_errno());
            // The work request of another registration has failed, or the queue pair long ago.
            let is_flushed = error == Errno::NotConnected.into();
            attempts = attempts.saturating_add(1);
            failures = failures.saturating_add(u32::from(!is_flushed));
            // The next attempt creates another queue pair.
            let again = attempts < MOST_ATTEMPTS && failures < MOST_FAILURES;
            if !again || !reg_qp.qp().is_closed() {
                self.device.lock().note_timeout(addr, error);
                return Err(if is_flushed { EIO } else { error });
            }
        }
    }

    /// Returns the registration queue pair, a free MR for `pages` pages if there is one, and the
    /// size of a new one. Creates the queue pair if there is none. Sleeps.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`, at once, during the back-off.
    /// - Any error of the device.
    fn prepare(&self, addr: &SocketAddr, pages: usize) -> Result<(Arc<RegQp>, Option<Mr>, u32)> {
        // Dropped after the lock.
        let closed;
        let mut device = self.device.lock();
        if device.backs_off(addr) {
            return Err(ETIMEDOUT);
        }
        // `close` takes the queue pair after the protection domain, so it finds one that is created
        // here.
        let pd = self.pd()?;
        let size = device.free_list.room_for(pages)?;
        closed = device.take_closed();
        if let Some(closed) = &closed {
            // With the lock held: `close` has to find all queue pairs that exist.
            closed.close();
        }
        let reg_qp = device.reg_qp(self.owners.queue(), &pd, &self.endpoints, addr);
        if let Err(error) = &reg_qp {
            // With the lock held: others wait for it, and must not time out one after another.
            device.note_timeout(addr, *error);
        }
        let reg_qp = reg_qp?;
        let free = device.free_list.take(pages);
        drop(device);
        Ok((reg_qp, free, size))
    }

    /// Gets an MR although the device has no room for more. Takes one that is about to be released.
    /// Otherwise destroys all free ones, which may be of the other size, and allocates one. Sleeps.
    fn make_room(
        &self,
        pd: &Arc<Pd>,
        pages: usize,
        size: u32,
        released: &mut Fifo<MrEntry>,
    ) -> Result<Mr> {
        let begun = Instant::now();
        let mut releases = self.releases.lock();
        loop {
            self.release_pending_invalidate(&mut releases, released);
            let free = self.device.lock().free_list.take(pages);
            if let Some(mr) = free {
                return Ok(mr);
            }
            let goes_on = !releases.quiesces.is_empty() && self.await_pass(&mut releases, begun);
            // The device may have been removed while the wait released the lock.
            self.pd()?;
            if !goes_on {
                break;
            }
        }
        drop(releases);
        destroy_free(&self.device);
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

    /// Invalidates the regions that wait for that, and appends the entries that are released to
    /// `released`. Sleeps.
    fn invalidate_pending(&self, releases: &mut MrReleases, released: &mut Fifo<MrEntry>) {
        let mut pending_invalidate = Fifo::new();
        let mut state = self.state.lock();
        pending_invalidate.append(&mut state.pending_invalidate);
        // One caller at a time has `releases`.
        state.invalidating = pending_invalidate.len();
        drop(state);
        releases.invalidate(&self.device, pending_invalidate, released);
        self.state.lock().invalidating = 0;
    }

    /// Releases stale memory, and drops the observers of the release. Sleeps.
    fn sweep(&self) {
        let mut released = Fifo::new();
        let mut releases = self.releases.lock();
        self.release_pending_invalidate(&mut releases, &mut released);
        drop(releases);
        drop(released);
    }

    /// Releases stale memory, and appends the entries to `released`. Sleeps.
    fn release_pending_invalidate(&self, releases: &mut MrReleases, released: &mut Fifo<MrEntry>) {
        let before = released.len();
        self.invalidate_pending(releases, released);
        if !self.reads_run_on {
            return;
        }
        // Before sends are posted, whose completions need the flag.
        self.quiescing.store(!releases.quiesces.is_empty(), Relaxed);
        releases.pass(&self.device, &self.endpoints, released);
        self.quiescing.store(!releases.quiesces.is_empty(), Relaxed);
        releases
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
        releases: &mut MutexGuard<'_, MrReleases>,
        begun: Instant<Monotonic>,
    ) -> bool {
        let left = FENCE_TIMEOUT - begun.elapsed();
        let left = left.as_micros_ceil().max(0).unsigned_abs().div_ceil(1_000);
        let left = msecs_to_jiffies(left.try_into().unwrap_or(u32::MAX));
        let result = self.passed.wait_interruptible_timeout(releases, left);
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
        let mut releases = self.releases.lock();
        let mut state = self.state.lock();
        let pd = state.pd.take();
        let mut held = core::mem::replace(&mut state.held, RBTree::new());
        state.offered = 0;
        drop(state);
        self.invalidate_pending(&mut releases, &mut released);
        // All queue pairs are gone, so no READ response is in progress.
        releases.pass(&self.device, &self.endpoints, &mut released);
        self.quiescing.store(false, Relaxed);
        self.passed.notify_all();
        drop(releases);
        let reg_qp = self.device.lock().reg_qp.take();
        if let Some(reg_qp) = reg_qp {
            // Registrations that are under way fail. The last of them drops the CM ids.
            reg_qp.close();
        }
        destroy_free(&self.device);
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
            let mut releases = self.releases.lock();
            // Entries that are added later are not waited for.
            let wanted = *wanted.get_or_insert(releases.quiesces.wanted());
            if releases.quiesces.over() >= wanted || !self.await_pass(&mut releases, begun) {
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
