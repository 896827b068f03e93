// SPDX-License-Identifier: GPL-2.0

//! Arenas: sets of shards with buffers of one size.
//!
//! # Operation
//!
//! An arena tracks which of its shards have free slots. Its user decides on the number and the size
//! of the shards. Each shard is in one of four lists, according to its fill level. Buffers are
//! taken from the fullest shards with free slots, so that the others become empty. Only an empty
//! shard can be returned to the kernel.
//!
//! Empty shards are kept, because allocating and mapping one costs as much as many messages. They
//! are returned when the kernel asks for memory ([`Arena::trim`]). If the arena has a work queue,
//! all but one are also returned when they were not needed for [`QUIET_MS`].
//!
//! # Revocation
//!
//! [`Arena::revoke`] unmaps all shards before the device is removed. This is safe because a [`Pd`]
//! counts its queue pairs: without any, and with creation prevented, nothing is posted. Buffers in
//! use stay readable; the pages of a shard are freed with its last buffer.

use super::{
    arena_stats::ArenaStats,
    bounce::ArenaAccount,
    device::IbDevice,
    domain::Domain,
    pd::Pd,
    shard::{
        shard_bytes,
        Shard,
        ShardSpec,
        Slot, //
    }, //
};
use crate::kapi::{
    sync::{
        cancel_delayed,
        new_spinlock_bh,
        OwnedQueue,
        SpinLockBh, //
    },
    task::without_io, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    list::{
        List,
        ListArc, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};

/// Number of empty shards that are kept even if they are not needed.
const SPARE_SHARDS: usize = 1;

/// Maximum number of shards that are unmapped or removed in one critical section. Other CPUs wait
/// for the lock with softirqs off.
const AT_ONCE: usize = 16;

/// Time after which unneeded empty shards are returned to the kernel.
const QUIET_MS: u32 = 5000;

/// Reason why an arena did not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowError {
    /// The limit of the arena and those that share it, or one of bounce buffers, is reached.
    Limit,
    /// No memory of this size is available.
    NoMemory,
    /// There was no memory a moment ago, so no attempt was made.
    Exhausted,
    /// The arena was revoked.
    Revoked,
}

/// Fill level of a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filling {
    Empty,
    Sparse,
    Dense,
    Full,
}

impl Filling {
    fn of(shard: &Shard) -> Self {
        match shard.free_count() {
            0 => Self::Full,
            free if free == shard.slots() => Self::Empty,
            free if free > shard.slots() / 2 => Self::Sparse,
            _ => Self::Dense,
        }
    }
}

/// The right to take a slot of a shard. It is granted by the holder of the arena's lock.
pub(super) struct TakeSlot<'a>(&'a Shard);

impl TakeSlot<'_> {
    #[inline]
    pub(super) fn take(self) -> Option<Slot> {
        // SAFETY: Only `Lists::take` creates `self`. It has a `&mut` to the lists, so the lock is
        // held, and its caller keeps the arena alive.
        unsafe { self.0.take() }
    }
}

/// The shards of an arena by their fill level.
///
/// # Invariants
///
/// - The lists contain all shards of the arena that holds `self`, and no other shard.
/// - A shard is in the list of its fill level.
/// - `keep` is `Some` if and only if `stats.in_use` is not zero.
struct Lists {
    empty: List<Shard>,
    sparse: List<Shard>,
    dense: List<Shard>,
    full: List<Shard>,
    /// Keeps the arena alive while a buffer is in use. Buffers do not count references.
    keep: Option<Arc<Arena>>,
    /// Device for which new shards are mapped.
    device: Option<ARef<IbDevice>>,
    revoked: bool,
    /// Bytes of the empty shards.
    empty_bytes: usize,
    /// Number of shards that are not empty.
    occupied: usize,
    /// Number of occupied shards that are still mapped after the arena was revoked.
    mapped: usize,
    /// Minimum number of empty shards since the last check. These shards are not needed.
    idle: usize,
    /// A check for unneeded empty shards is scheduled.
    watched: bool,
    /// NUMA node of the device. Negative if there is none.
    node: i32,
    account: Arc<ArenaAccount>,
    stats: ArenaStats,
}

impl Lists {
    fn list(&mut self, filling: Filling) -> &mut List<Shard> {
        match filling {
            Filling::Empty => &mut self.empty,
            Filling::Sparse => &mut self.sparse,
            Filling::Dense => &mut self.dense,
            Filling::Full => &mut self.full,
        }
    }

    /// Returns the list of the fullest shards that have a free slot.
    #[inline]
    fn fullest(&mut self) -> (Filling, &mut List<Shard>) {
        if !self.dense.is_empty() {
            (Filling::Dense, &mut self.dense)
        } else if !self.sparse.is_empty() {
            (Filling::Sparse, &mut self.sparse)
        } else {
            (Filling::Empty, &mut self.empty)
        }
    }

    /// Passes up to `want` free buffers to `give`, until `give` returns `false` because it has no
    /// room. Returns the number of buffers.
    ///
    /// # Safety
    ///
    /// Unless the result is zero, the caller must set `keep` before the lock is released.
    #[inline]
    unsafe fn take(&mut self, want: usize, mut give: impl FnMut(TakeSlot<'_>) -> bool) -> usize {
        let mut got = 0;
        while got < want {
            let (before, list) = self.fullest();
            let mut cursor = list.cursor_front();
            let Some(first) = cursor.peek_next() else {
                break;
            };
            let shard = first.arc();
            while got < want && give(TakeSlot(&shard)) {
                got = usize::wrapping_add(got, 1);
            }
            let after = Filling::of(&shard);
            if after == before {
                // `want` is reached or `give` has no room. Otherwise the shard would be full.
                break;
            }
            let bytes = shard.bytes();
            let shard = first.remove();
            self.list(after).push_front(shard);
            if before == Filling::Empty {
                self.occupied = self.occupied.wrapping_add(1);
                self.empty_bytes = self.empty_bytes.wrapping_sub(bytes);
                self.stats.empty = self.stats.empty.wrapping_sub(1);
                self.idle = self.idle.min(self.stats.empty);
            }
        }
        self.stats.in_use = self.stats.in_use.wrapping_add(got);
        self.stats.high_water = self.stats.high_water.max(self.stats.in_use);
        got
    }

    fn is_foreign(&self, shard: &Shard) -> bool {
        self.node >= 0 && shard.node() != self.node
    }

    /// Subtracts a shard, or a reservation for a shard that was not allocated, from the statistics.
    fn forget(&mut self, bytes: usize) {
        self.stats.shards = self.stats.shards.wrapping_sub(1);
        self.stats.bytes = self.stats.bytes.wrapping_sub(bytes);
        self.account.release(bytes);
    }

    /// Subtracts a shard that leaves the arena from the statistics.
    fn leave(&mut self, shard: &Shard) {
        let foreign = usize::from(self.is_foreign(shard));
        self.stats.foreign = self.stats.foreign.wrapping_sub(foreign);
        self.stats.slots = self.stats.slots.wrapping_sub(shard.slots() as usize);
        self.forget(shard.bytes());
    }

    /// Frees a slot. Returns the shard if the arena cannot keep it. The caller drops the shard
    /// after it has released the lock.
    ///
    /// # Safety
    ///
    /// The last handle of the slot must be in its destructor, and the shard must belong to this
    /// arena.
    unsafe fn put(&mut self, shard: &Shard, slot: u32) -> Option<ListArc<Shard>> {
        let before = Filling::of(shard);
        // SAFETY: `self` is reached through the lock only. The caller guarantees the state of the
        // slot.
        unsafe { shard.put(slot) };
        self.stats.in_use = self.stats.in_use.wrapping_sub(1);
        let after = Filling::of(shard);
        if before == after {
            return None;
        }
        // SAFETY: The shard belongs to this arena. By the type invariants it is in this list.
        let mut shard = unsafe { self.list(before).remove(shard) }?;
        if after != Filling::Empty {
            self.list(after).push_back(shard);
            return None;
        }
        self.occupied = self.occupied.wrapping_sub(1);
        if self.revoked {
            let is_mapped = shard.mapping_mut().is_some();
            self.mapped = self.mapped.wrapping_sub(usize::from(is_mapped));
            self.leave(&shard);
            return Some(shard);
        }
        self.add_empty(shard);
        None
    }

    fn add_empty(&mut self, shard: ListArc<Shard>) {
        self.empty_bytes = self.empty_bytes.wrapping_add(shard.bytes());
        self.stats.empty = self.stats.empty.wrapping_add(1);
        self.empty.push_front(shard);
    }

    /// Removes up to `most` empty shards, and at most [`AT_ONCE`], until they have `bytes` in
    /// total. The caller drops them after it has released the lock.
    fn take_empty(&mut self, bytes: usize, most: usize) -> List<Shard> {
        let mut out = List::new();
        let mut freed = 0usize;
        for _ in 0..most.min(AT_ONCE) {
            if freed >= bytes {
                break;
            }
            // The most recently used shard is at the front, so it is removed last.
            let Some(shard) = self.empty.pop_back() else {
                break;
            };
            freed = freed.saturating_add(shard.bytes());
            self.leave(&shard);
            self.empty_bytes = self.empty_bytes.wrapping_sub(shard.bytes());
            self.stats.empty = self.stats.empty.wrapping_sub(1);
            out.push_back(shard);
        }
        self.idle = self.idle.min(self.stats.empty);
        out
    }

    /// Unmaps some of the shards in use. Returns `true` if there may be more. The lists are
    /// rotated: a CPU that frees a buffer meanwhile may put a mapped shard behind unmapped ones.
    fn unmap_some(&mut self) -> bool {
        for filling in [Filling::Sparse, Filling::Dense, Filling::Full] {
            for _ in 0..AT_ONCE / 3 {
                let Some(mut shard) = self.list(filling).pop_front() else {
                    break;
                };
                let mapping = shard.mapping_mut().take();
                self.mapped = self.mapped.wrapping_sub(usize::from(mapping.is_some()));
                self.list(filling).push_back(shard);
                drop(mapping);
            }
        }
        self.mapped > 0
    }

    /// Returns `true` if empty shards have to be checked and no check is scheduled.
    fn needs_watch(&self) -> bool {
        self.stats.empty > SPARE_SHARDS && !self.watched && !self.revoked
    }
}

/// A set of shards with buffers of one size, see the module documentation.
///
/// # Context
///
/// Methods without this section may be called in any context except hard interrupt.
#[pin_data]
pub(crate) struct Arena {
    #[pin]
    lists: SpinLockBh<Lists>,
    /// Size of a buffer, in bytes.
    buf_size: u32,
    domain: Option<Arc<Domain>>,
    account: Arc<ArenaAccount>,
    /// Work queue of the checks for unneeded empty shards.
    queue: Option<Arc<OwnedQueue>>,
    #[pin]
    watch: DelayedWork<Arena, 0>,
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Arena { self.watch }
}

impl WorkItem<0> for Arena {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.reap();
            this.watch_if_needed();
        });
    }
}

impl Arena {
    /// Creates an arena like [`Self::several`], with limits of its own.
    ///
    /// # Context
    ///
    /// May sleep.
    #[cfg(rds_kunit)]
    pub(crate) fn new(
        pd: Option<&Pd>,
        queue: Option<Arc<OwnedQueue>>,
        buf_size: u32,
    ) -> Result<Arc<Self>> {
        Self::with_account(pd, queue, buf_size, ArenaAccount::new()?)
    }

    /// Creates `count` arenas without shards, for buffers of `buf_size` bytes and queue pairs of
    /// `pd`. They share their limits.
    ///
    /// Without `pd` their buffers cannot be posted. Without `queue` empty shards stay until a trim.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn several(
        count: usize,
        pd: Option<&Pd>,
        queue: Option<Arc<OwnedQueue>>,
        buf_size: u32,
    ) -> Result<KVec<Arc<Self>>> {
        let account = ArenaAccount::new()?;
        let mut arenas = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let arena = Self::with_account(pd, queue.clone(), buf_size, account.clone())?;
            arenas.push(arena, GFP_KERNEL)?;
        }
        Ok(arenas)
    }

    fn with_account(
        pd: Option<&Pd>,
        queue: Option<Arc<OwnedQueue>>,
        buf_size: u32,
        account: Arc<ArenaAccount>,
    ) -> Result<Arc<Self>> {
        const NO_NODE: i32 = -1;
        let lists = Lists {
            empty: List::new(),
            sparse: List::new(),
            dense: List::new(),
            full: List::new(),
            keep: None,
            device: pd.map(|pd| pd.device().into()),
            revoked: false,
            empty_bytes: 0,
            occupied: 0,
            mapped: 0,
            idle: 0,
            watched: false,
            node: pd.map_or(NO_NODE, |pd| pd.device().numa_node()),
            account: account.clone(),
            stats: ArenaStats::default(),
        };
        // INVARIANT: There are no shards in `lists`.
        Arc::pin_init(
            pin_init!(Self {
                lists <- new_spinlock_bh!(lists, "rdma_arena"),
                buf_size,
                domain: pd.map(|pd| pd.domain().clone()),
                account,
                queue,
                watch <- kernel::new_delayed_work!("rdma_arena"),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        self.lists.lock().stats
    }

    /// Returns `true` if the arena was revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.lists.lock().revoked
    }

    /// Returns the size of all empty shards, in bytes.
    pub(crate) fn trimmable(&self) -> usize {
        self.lists.lock().empty_bytes
    }

    /// Returns the domain for which the buffers are mapped. Null if they are not mapped.
    #[inline]
    pub(super) fn domain(&self) -> *const Domain {
        self.domain.as_ref().map_or(ptr::null(), Arc::as_ptr)
    }

    /// Passes up to `want` free slots to `give`, until `give` returns `false` because it has no
    /// room. Passes none unless more than `spare` slots are free. Returns the number of slots.
    #[inline]
    pub(super) fn take_with(
        this: &Arc<Self>,
        want: usize,
        spare: usize,
        give: impl FnMut(TakeSlot<'_>) -> bool,
    ) -> usize {
        let mut lists = this.lists.lock();
        if lists.revoked || lists.stats.free() <= spare {
            return 0;
        }
        // SAFETY: `keep` is set below, before the lock is released.
        let got = unsafe { lists.take(want, give) };
        if got > 0 && lists.keep.is_none() {
            lists.keep = Some(this.clone());
        }
        got
    }

    /// Adds a shard of page order `order`, unless all shards together would exceed `limit` bytes.
    /// These include the shards of arenas that share their limits with this one.
    /// The page allocator only tries hard for the order `smallest`.
    ///
    /// # Context
    ///
    /// Sleeps if `may_sleep`. Otherwise any context except hard interrupt.
    pub(crate) fn grow(
        &self,
        order: u32,
        smallest: u32,
        limit: usize,
        may_sleep: bool,
    ) -> Result<(), GrowError> {
        let bytes = shard_bytes(order);
        let (node, device) = {
            let mut lists = self.lists.lock();
            if lists.revoked {
                return Err(GrowError::Revoked);
            }
            if !self.account.reserve(bytes, limit) {
                return Err(GrowError::Limit);
            }
            lists.stats.bytes = lists.stats.bytes.wrapping_add(bytes);
            lists.stats.shards = lists.stats.shards.wrapping_add(1);
            (lists.node, lists.device.clone())
        };
        let shard = Shard::new(ShardSpec {
            arena: NonNull::from(self).cast(),
            buf_size: self.buf_size,
            order,
            smallest,
            node,
            may_sleep,
            target: self.domain.as_ref().zip(device),
            account: &self.account,
        });
        let mut lists = self.lists.lock();
        match shard {
            Ok(shard) if !lists.revoked => {
                let foreign = usize::from(lists.is_foreign(&shard));
                lists.stats.foreign = lists.stats.foreign.wrapping_add(foreign);
                lists.stats.slots = lists.stats.slots.wrapping_add(shard.slots() as usize);
                lists.add_empty(shard);
                Ok(())
            }
            shard => {
                lists.forget(bytes);
                drop(lists);
                match shard {
                    Ok(_) => Err(GrowError::Revoked),
                    Err(error) if error == ENOSPC => Err(GrowError::Limit),
                    Err(_) => Err(GrowError::NoMemory),
                }
            }
        }
    }

    /// Frees empty shards until at least `want` bytes are freed. Returns the number of freed bytes.
    pub(crate) fn trim(&self, want: usize) -> usize {
        let mut freed = 0usize;
        while freed < want {
            let empty = self
                .lists
                .lock()
                .take_empty(want.saturating_sub(freed), AT_ONCE);
            if empty.is_empty() {
                break;
            }
            freed = freed.saturating_add(empty.iter().map(|shard| shard.bytes()).sum());
        }
        freed
    }

    /// Frees the shards that were empty since the last call, except [`SPARE_SHARDS`].
    pub(crate) fn reap(&self) {
        loop {
            let mut lists = self.lists.lock();
            let idle = lists.idle;
            let surplus = idle.saturating_sub(SPARE_SHARDS);
            let gone = lists.take_empty(usize::MAX, surplus);
            if gone.is_empty() {
                lists.watched = false;
                lists.idle = lists.stats.empty;
                return;
            }
            // Other empty shards may have been used meanwhile. They stay.
            let left = idle.saturating_sub(surplus.min(AT_ONCE));
            lists.idle = lists.idle.min(left);
            drop(lists);
            drop(gone);
        }
    }

    /// Schedules a check for unneeded empty shards, if there are too many.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn watch_if_needed(self: &Arc<Self>) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut lists = self.lists.lock();
        if lists.needs_watch() {
            lists.watched = true;
            // The lock is held, so `revoke` either finds the timer armed or it is never armed.
            queue.arm::<_, 0>(self.clone(), QUIET_MS);
        }
    }

    /// Revokes the arena. Afterwards nothing is mapped or taken, and no queue pair can be created.
    ///
    /// # Errors
    ///
    /// - `EBUSY`, without any change, while the protection domain has a queue pair.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn revoke(self: &Arc<Self>) -> Result {
        if let Some(domain) = &self.domain {
            domain.close()?;
        }
        let mut lists = self.lists.lock();
        if !lists.revoked {
            lists.revoked = true;
            lists.mapped = self.domain.as_ref().map_or(0, |_| lists.occupied);
        }
        let device = lists.device.take();
        drop(lists);
        self.trim(usize::MAX);
        while self.lists.lock().unmap_some() {}
        drop(device);
        cancel_delayed::<_, 0>(self);
        Ok(())
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// The last handle of the slot must be in its destructor.
    pub(super) unsafe fn release(slot: &Slot) {
        let shard = slot.shard();
        // SAFETY: By the invariants of `Shard` this is an arena, which is alive while one of its
        // slots is taken.
        let this = unsafe { shard.arena().cast::<Self>().as_ref() };
        let mut lists = this.lists.lock();
        // SAFETY: The caller guarantees the state of the slot, and `this` is the shard's arena.
        let unused = unsafe { lists.put(shard, slot.index()) };
        let watch = lists.needs_watch().then(|| lists.keep.clone()).flatten();
        let keep = match lists.stats.in_use {
            0 => lists.keep.take(),
            _ => None,
        };
        drop(lists);
        drop(unused);
        if let Some(this) = watch {
            this.watch_if_needed();
        }
        // This may drop the arena.
        drop(keep);
    }
}
