// SPDX-License-Identifier: GPL-2.0

//! Arenas: shards with equal buffers, sorted by how full they are.
//!
//! An arena knows which of its shards have free slots; how many shards there may be and how large
//! they are is for its user to say. Every shard is in one of four lists, by how full it is. Buffers
//! come from the fullest shards that have any, so that the others get empty: only an empty shard can
//! go back to the kernel.
//!
//! Empty shards are kept, because making and mapping one costs as much as many messages. They go
//! when the kernel asks ([`Arena::trim`]), and one by one spare also when they were not needed for a
//! while ([`QUIET_MS`]), if the arena has a queue on which to look at them.
//!
//! # Revocation
//!
//! When the device goes, [`Arena::revoke`] unmaps all shards. It can do that because a [`Pd`]
//! counts its queue pairs: with none left, and none to come, nothing is posted. Buffers that are in
//! use stay readable; their pages are freed with the last one.

use super::{
    batch::Batch,
    device::Device,
    domain::Domain,
    pd::Pd,
    shard::{shard_bytes, BufMut, Shard, ShardMapping, ShardSpec},
};
use crate::kapi::{
    sync::{cancel_delayed, new_spinlock_bh, OwnedQueue, SpinLockBh},
    task::without_io,
};
use core::ptr::{self, NonNull};
use kernel::{
    list::{List, ListArc},
    prelude::*,
    sync::{aref::ARef, Arc},
    workqueue::{DelayedWork, WorkItem},
};

/// Empty shards that are kept even if they are not needed.
const SPARE_SHARDS: usize = 1;

/// The most shards that are unmapped, or taken out to be, with the lock held, which others wait for with softirqs off.
const AT_ONCE: usize = 16;

/// Empty shards that nobody needed for this long are given back, in milliseconds.
const QUIET_MS: u32 = 5000;

/// Numbers about an [`Arena`].
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct ArenaStats {
    pub(crate) shards: usize,
    /// Bytes of all shards together.
    pub(crate) bytes: usize,
    /// Buffers that are not free.
    pub(crate) in_use: usize,
    /// The most that [`Self::in_use`] ever was.
    pub(crate) high_water: usize,
    /// Shards without a used buffer.
    pub(crate) empty: usize,
    /// Shards on another NUMA node than the device.
    pub(crate) foreign: usize,
}

/// Why an arena did not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowError {
    /// The limit is reached.
    Limit,
    /// There is no memory of this size.
    NoMemory,
    /// The arena was revoked.
    Revoked,
}

/// How full a shard is.
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

/// The right to take a slot of a shard, which the holder of the lock gives.
struct TakeSlot<'a>(&'a Shard);

impl TakeSlot<'_> {
    #[inline]
    fn take(self) -> Option<BufMut> {
        // SAFETY: `Lists::take` made `self`: there is a `&mut` to the lists, so that the lock is held,
        // and its caller keeps the arena.
        unsafe { self.0.take() }
    }
}

/// The shards by their filling.
///
/// # Invariants
///
/// - All shards here belong to the arena that holds this, and no other shard does.
/// - A shard is in the list of its filling.
/// - `keep` is there if and only if `stats.in_use` is not zero.
struct Lists {
    empty: List<Shard>,
    sparse: List<Shard>,
    dense: List<Shard>,
    full: List<Shard>,
    /// Keeps the arena while a buffer is in use: buffers do not count references.
    keep: Option<Arc<Arena>>,
    /// What new shards are mapped for.
    device: Option<ARef<Device>>,
    revoked: bool,
    /// Bytes of the empty shards.
    empty_bytes: usize,
    /// Shards that are not empty.
    occupied: usize,
    /// Those of them that are still mapped after the arena was revoked.
    mapped: usize,
    /// The most bytes of all shards, once one has bounce buffers.
    bound: usize,
    /// The fewest empty shards there were since someone last looked: so many are not needed.
    idle: usize,
    /// Someone will look.
    watched: bool,
    /// The node next to the device, or a negative number.
    node: i32,
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

    /// The fullest shards that have a free slot.
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

    /// Hands up to `want` free buffers to `give`, until it has no room and takes none, and returns
    /// how many.
    ///
    /// # Safety
    ///
    /// `keep` must be set before the lock is given up, unless the result is zero.
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
                // Enough, or no room for more: otherwise it would be full.
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

    /// Takes a shard out of the account, or one that was reserved and did not come.
    fn forget(&mut self, bytes: usize) {
        self.stats.shards = self.stats.shards.wrapping_sub(1);
        self.stats.bytes = self.stats.bytes.wrapping_sub(bytes);
    }

    /// Takes a shard that leaves the arena out of the account.
    fn leave(&mut self, shard: &Shard) {
        let foreign = usize::from(self.is_foreign(shard));
        self.stats.foreign = self.stats.foreign.wrapping_sub(foreign);
        self.forget(shard.bytes());
    }

    /// Puts a slot back. A shard that cannot be kept is returned, to be dropped when the lock is not
    /// held.
    ///
    /// # Safety
    ///
    /// The last handle of the slot must be on its way out, and the shard belong to this arena.
    unsafe fn put(&mut self, shard: &Shard, slot: u32) -> Option<ListArc<Shard>> {
        let before = Filling::of(shard);
        // SAFETY: `self` is only reached through the lock; the caller vouches for the slot.
        unsafe { shard.put(slot) };
        self.stats.in_use = self.stats.in_use.wrapping_sub(1);
        let after = Filling::of(shard);
        if before == after {
            return None;
        }
        // SAFETY: The shard belongs to this arena; by the type invariants it is in this list.
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

    /// Takes out up to `most` empty shards, or [`AT_ONCE`], until `bytes` are reached, to be dropped when the lock is not
    /// held.
    fn take_empty(&mut self, bytes: usize, most: usize) -> List<Shard> {
        let mut out = List::new();
        let mut freed = 0usize;
        for _ in 0..most.min(AT_ONCE) {
            if freed >= bytes {
                break;
            }
            // The one that was used last comes last.
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

    /// Unmaps some of the shards that are in use, and says whether there may be more. They take turns, as who frees a
    /// buffer may put a shard behind those that are done.
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

    /// Whether more shards are empty than are kept without a reason, and nobody looks at them yet.
    fn needs_watch(&self) -> bool {
        self.stats.empty > SPARE_SHARDS && !self.watched && !self.revoked
    }
}

/// Shards with equal buffers.
#[pin_data]
pub(crate) struct Arena {
    #[pin]
    lists: SpinLockBh<Lists>,
    /// Bytes of a buffer.
    buf_size: u32,
    domain: Option<Arc<Domain>>,
    /// Where unneeded shards are looked for.
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
    /// An arena without shards, for buffers of `buf_size` bytes and queue pairs of `pd`. Without one its
    /// buffers cannot be posted. Without a queue empty shards stay until someone trims the arena. May sleep.
    pub(crate) fn new(
        pd: Option<&Pd>,
        queue: Option<Arc<OwnedQueue>>,
        buf_size: u32,
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
            bound: usize::MAX,
            idle: 0,
            watched: false,
            node: pd.map_or(NO_NODE, |pd| pd.device().numa_node()),
            stats: ArenaStats::default(),
        };
        // INVARIANT (of `Lists`): There are no shards.
        Arc::pin_init(
            pin_init!(Self {
                lists <- new_spinlock_bh!(lists, "rdma_arena"),
                buf_size,
                domain: pd.map(|pd| pd.domain().clone()),
                queue,
                watch <- kernel::new_delayed_work!("rdma_arena"),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        self.lists.lock().stats
    }

    /// Whether the arena was revoked. Any context but a hard interrupt.
    pub(crate) fn is_revoked(&self) -> bool {
        self.lists.lock().revoked
    }

    /// Bytes of the empty shards. Any context but a hard interrupt.
    pub(crate) fn trimmable(&self) -> usize {
        self.lists.lock().empty_bytes
    }

    /// The domain that the buffers are mapped for; null if they are not.
    #[inline]
    pub(super) fn domain(&self) -> *const Domain {
        self.domain.as_ref().map_or(ptr::null(), Arc::as_ptr)
    }

    /// Moves up to `want` free buffers to `out`, as far as there is room, and returns how many. Any
    /// context but a hard interrupt; takes the lock once.
    pub(crate) fn take(this: &Arc<Self>, want: usize, out: &mut Batch) -> usize {
        Self::take_with(this, want, |slot| out.push_with(|| slot.take()))
    }

    /// A free buffer, if there is one. Any context but a hard interrupt.
    #[inline]
    pub(crate) fn take_one(this: &Arc<Self>) -> Option<BufMut> {
        let mut one = None;
        Self::take_with(this, 1, |slot| {
            one = slot.take();
            one.is_some()
        });
        one
    }

    #[inline]
    fn take_with(this: &Arc<Self>, want: usize, give: impl FnMut(TakeSlot<'_>) -> bool) -> usize {
        let mut lists = this.lists.lock();
        if lists.revoked {
            return 0;
        }
        // SAFETY: `keep` is set at once.
        let got = unsafe { lists.take(want, give) };
        if got > 0 && lists.keep.is_none() {
            lists.keep = Some(this.clone());
        }
        got
    }

    /// Adds a shard of `order`, unless all shards take more than `limit` bytes then; only one of order
    /// `smallest` is worth an effort. Sleeps if `may_sleep`, otherwise any context but a hard interrupt.
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
            let total = lists.stats.bytes.saturating_add(bytes);
            if lists.revoked {
                return Err(GrowError::Revoked);
            }
            if total > limit.min(lists.bound) {
                return Err(GrowError::Limit);
            }
            lists.stats.bytes = total;
            lists.stats.shards = lists.stats.shards.wrapping_add(1);
            (lists.node, lists.device.clone())
        };
        let shard = Shard::new(ShardSpec {
            arena: NonNull::from(self),
            buf_size: self.buf_size,
            order,
            smallest,
            node,
            may_sleep,
            target: self.domain.as_ref().zip(device),
        });
        let mut lists = self.lists.lock();
        match shard {
            Ok(mut shard) if !lists.revoked => {
                if let Some(bound) = shard.mapping_mut().as_ref().and_then(ShardMapping::bound) {
                    lists.bound = bound;
                }
                let foreign = usize::from(lists.is_foreign(&shard));
                lists.stats.foreign = lists.stats.foreign.wrapping_add(foreign);
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

    /// Gives empty shards back to the kernel, until `want` bytes are reached, and returns how many
    /// bytes that were. Any context but a hard interrupt.
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

    /// Gives back what was empty since the last call, but for a spare. Any context but a hard
    /// interrupt.
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
            // Someone may have needed others meanwhile: those stay.
            let left = idle.saturating_sub(surplus.min(AT_ONCE));
            lists.idle = lists.idle.min(left);
            drop(lists);
            drop(gone);
        }
    }

    /// Has someone look at the empty shards in a while, if there are too many. Any context but a hard
    /// interrupt.
    fn watch_if_needed(self: &Arc<Self>) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut lists = self.lists.lock();
        if lists.needs_watch() {
            lists.watched = true;
            // With the lock, so that `revoke` finds the timer running or never to run.
            queue.arm::<_, 0>(self.clone(), QUIET_MS);
        }
    }

    /// Ends the arena's use: there will be no buffers from it any more, and nothing of it is mapped
    /// when this returns. `EBUSY`, and nothing happened, while the protection domain has a queue
    /// pair; afterwards it cannot get one. Process context; sleeps.
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

    /// Frees a slot. Any context but a hard interrupt.
    ///
    /// # Safety
    ///
    /// The slot must not be free, and its last handle be on its way out.
    pub(super) unsafe fn release(shard: NonNull<Shard>, slot: u32) {
        // SAFETY: The slot is not free, so by the invariants of `Shard` it is in its arena's lists.
        let shard = unsafe { shard.as_ref() };
        // SAFETY: As above: an arena lives while one of its slots is taken.
        let this = unsafe { shard.arena().as_ref() };
        let mut lists = this.lists.lock();
        // SAFETY: The caller vouches for the slot, and `this` is the shard's arena.
        let unused = unsafe { lists.put(shard, slot) };
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
        // This may end the arena.
        drop(keep);
    }
}
