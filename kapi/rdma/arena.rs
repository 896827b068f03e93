// SPDX-License-Identifier: GPL-2.0

//! Arenas: shards with equal buffers, sorted by how full they are.
//!
//! An arena knows which of its shards have free slots; how many shards there may be and how large
//! they are is for its user to say. Every shard is in one of three lists: `full`, `partial`,
//! `empty`. Buffers come from `partial` before `empty`, so that shards get empty again, and an
//! empty shard beyond one spare goes back to the kernel at once.
//!
//! # Revocation
//!
//! When the device goes, [`Arena::revoke`] unmaps all shards. It can do that because a [`Pd`]
//! counts its queue pairs: with none left, and none to come, nothing is posted. Buffers that are in
//! use stay readable; their pages are freed with the last one.

use super::{
    device::Device,
    pd::{Domain, Pd},
    shard::{shard_bytes, BufMut, Shard, ShardSpec},
};
use crate::kapi::sync::{new_spinlock_bh, SpinLockBh};
use core::ptr::NonNull;
use kernel::{
    list::{List, ListArc},
    prelude::*,
    sync::{aref::ARef, Arc},
};

/// Empty shards that are kept for the next allocation.
const SPARE_SHARDS: usize = 1;

/// What an [`Arena`] holds.
#[derive(Clone, Copy)]
pub(crate) struct ArenaConfig {
    /// Bytes of a buffer.
    pub(crate) buf_size: u32,
    /// Most bytes of all shards together.
    pub(crate) max_bytes: usize,
}

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

/// A few buffers on the way from the pool to a queue pair.
pub(crate) struct Batch {
    bufs: [Option<BufMut>; Self::MAX],
    len: usize,
}

impl Batch {
    /// Most buffers in a batch.
    pub(crate) const MAX: usize = 16;

    pub(crate) const fn new() -> Self {
        Self {
            bufs: [const { None }; Self::MAX],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many buffers more there is room for.
    pub(crate) fn room(&self) -> usize {
        Self::MAX.saturating_sub(self.len)
    }

    /// Adds what `f` gives; `f` is not called when there is no room. False if nothing was added.
    pub(super) fn push_with(&mut self, f: impl FnOnce() -> Option<BufMut>) -> bool {
        let Some(place) = self.bufs.get_mut(self.len) else {
            return false;
        };
        *place = f();
        let added = place.is_some();
        self.len = self.len.wrapping_add(usize::from(added));
        added
    }

    pub(crate) fn push(&mut self, buf: BufMut) -> Result<(), BufMut> {
        let mut buf = Some(buf);
        self.push_with(|| buf.take());
        buf.map_or(Ok(()), Err)
    }

    pub(crate) fn pop(&mut self) -> Option<BufMut> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        self.bufs.get_mut(last)?.take()
    }
}

/// The shards by their filling.
///
/// # Invariants
///
/// - All shards here belong to the arena that holds this, and no other shard does.
/// - A shard is in `full` if no slot is free, in `empty` if all are, in `partial` otherwise.
/// - `keep` is there if and only if `stats.in_use` is not zero.
struct Lists {
    partial: List<Shard>,
    empty: List<Shard>,
    full: List<Shard>,
    /// Keeps the arena while a buffer is in use: buffers do not count references.
    keep: Option<Arc<Arena>>,
    /// What new shards are mapped for.
    device: Option<ARef<Device>>,
    revoked: bool,
    stats: ArenaStats,
}

impl Lists {
    /// Takes a shard that leaves the arena out of the account.
    fn forget(&mut self, bytes: usize) {
        self.stats.shards = self.stats.shards.wrapping_sub(1);
        self.stats.bytes = self.stats.bytes.wrapping_sub(bytes);
    }

    /// Puts a slot back. A shard that is not needed any more is returned, to be dropped when the
    /// lock is not held.
    ///
    /// # Safety
    ///
    /// The last handle of the slot must be on its way out, and the shard belong to this arena.
    unsafe fn put(&mut self, shard: &Shard, slot: u32) -> Option<ListArc<Shard>> {
        let was_full = shard.free_count() == 0;
        // SAFETY: `self` is only reached through the lock; the caller vouches for the slot.
        let all_free = unsafe { shard.put(slot) } == shard.slots();
        self.stats.in_use = self.stats.in_use.wrapping_sub(1);
        if !was_full && !all_free {
            return None;
        }
        let list = if was_full {
            &mut self.full
        } else {
            &mut self.partial
        };
        // SAFETY: The shard belongs to this arena; by the type invariants it is in this list.
        let shard = unsafe { list.remove(shard) }?;
        if !all_free {
            self.partial.push_back(shard);
        } else if self.revoked || self.stats.empty >= SPARE_SHARDS {
            self.forget(shard.bytes());
            return Some(shard);
        } else {
            self.stats.empty = self.stats.empty.wrapping_add(1);
            self.empty.push_front(shard);
        }
        None
    }

    /// Takes out the empty shards, to be dropped when the lock is not held.
    fn take_empty(&mut self) -> List<Shard> {
        let mut out = List::new();
        while let Some(shard) = self.empty.pop_front() {
            self.forget(shard.bytes());
            out.push_back(shard);
        }
        self.stats.empty = 0;
        out
    }
}

/// Shards with equal buffers.
#[pin_data]
pub(crate) struct Arena {
    #[pin]
    lists: SpinLockBh<Lists>,
    config: ArenaConfig,
    domain: Option<Arc<Domain>>,
    node: i32,
}

impl Arena {
    /// An arena without shards, for queue pairs of `pd`. Without one its buffers cannot be posted.
    pub(crate) fn new(pd: Option<&Pd>, config: ArenaConfig) -> Result<Arc<Self>> {
        const NO_NODE: i32 = -1;
        let lists = Lists {
            partial: List::new(),
            empty: List::new(),
            full: List::new(),
            keep: None,
            device: pd.map(|pd| pd.device().into()),
            revoked: false,
            stats: ArenaStats::default(),
        };
        // INVARIANT (of `Lists`): There are no shards.
        Arc::pin_init(
            pin_init!(Self {
                lists <- new_spinlock_bh!(lists, "rdma_arena"),
                config,
                domain: pd.map(|pd| pd.domain().clone()),
                node: pd.map_or(NO_NODE, |pd| pd.device().numa_node()),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        self.lists.lock().stats
    }

    /// Moves up to `want` free buffers to `out`, as far as there is room, and returns how many. Any
    /// context but a hard interrupt; takes the lock once.
    pub(crate) fn take(this: &Arc<Self>, want: usize, out: &mut Batch) -> usize {
        let mut guard = this.lists.lock();
        let lists = &mut *guard;
        let want = want.min(out.room());
        let mut got = 0;
        while !lists.revoked && got < want {
            if lists.partial.is_empty() {
                let Some(shard) = lists.empty.pop_front() else {
                    break;
                };
                lists.stats.empty = lists.stats.empty.wrapping_sub(1);
                lists.partial.push_front(shard);
            }
            let mut cursor = lists.partial.cursor_front();
            let Some(first) = cursor.peek_next() else {
                break;
            };
            let shard = first.arc();
            // SAFETY: The lock is held. `keep` is set below, before it is given up.
            while got < want && out.push_with(|| unsafe { shard.take() }) {
                got = usize::wrapping_add(got, 1);
            }
            if shard.free_count() == 0 {
                lists.full.push_back(first.remove());
            }
        }
        if got > 0 && lists.keep.is_none() {
            lists.keep = Some(this.clone());
        }
        let stats = &mut lists.stats;
        stats.in_use = stats.in_use.wrapping_add(got);
        stats.high_water = stats.high_water.max(stats.in_use);
        got
    }

    /// Adds a shard of `order`; only one of order `smallest` is worth an effort. Sleeps if
    /// `may_sleep`, otherwise any context but a hard interrupt.
    pub(crate) fn grow(&self, order: u32, smallest: u32, may_sleep: bool) -> Result<(), GrowError> {
        let bytes = shard_bytes(order);
        let device = {
            let mut lists = self.lists.lock();
            let total = lists.stats.bytes.saturating_add(bytes);
            if lists.revoked {
                return Err(GrowError::Revoked);
            }
            if total > self.config.max_bytes {
                return Err(GrowError::Limit);
            }
            lists.stats.bytes = total;
            lists.stats.shards = lists.stats.shards.wrapping_add(1);
            lists.device.clone()
        };
        let shard = Shard::new(ShardSpec {
            arena: NonNull::from(self),
            buf_size: self.config.buf_size,
            order,
            smallest,
            node: self.node,
            may_sleep,
            target: self.domain.as_ref().zip(device),
        });
        let mut lists = self.lists.lock();
        match shard {
            Ok(shard) if !lists.revoked => {
                lists.stats.empty = lists.stats.empty.wrapping_add(1);
                lists.empty.push_back(shard);
                Ok(())
            }
            shard => {
                lists.forget(bytes);
                drop(lists);
                Err(shard.map_or(GrowError::NoMemory, |_| GrowError::Revoked))
            }
        }
    }

    /// Gives empty shards back to the kernel and returns their bytes. Any context but a hard
    /// interrupt.
    pub(crate) fn trim(&self) -> usize {
        let mut lists = self.lists.lock();
        let before = lists.stats.bytes;
        let empty = lists.take_empty();
        let freed = before.wrapping_sub(lists.stats.bytes);
        drop(lists);
        drop(empty);
        freed
    }

    /// Ends the arena's use: there will be no buffers from it any more, and nothing of it is mapped
    /// when this returns. `EBUSY`, and nothing happened, while the protection domain has a queue
    /// pair; afterwards it cannot get one. Process context.
    pub(crate) fn revoke(&self) -> Result {
        if let Some(domain) = &self.domain {
            domain.close()?;
        }
        let mut guard = self.lists.lock();
        let lists = &mut *guard;
        lists.revoked = true;
        let device = lists.device.take();
        let empty = lists.take_empty();
        for list in [&mut lists.partial, &mut lists.full] {
            let mut unmapped = List::new();
            while let Some(mut shard) = list.pop_front() {
                drop(shard.mapping_mut().take());
                unmapped.push_back(shard);
            }
            list.push_all_back(&mut unmapped);
        }
        drop(guard);
        drop(empty);
        drop(device);
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
        let keep = match lists.stats.in_use {
            0 => lists.keep.take(),
            _ => None,
        };
        drop(lists);
        drop(unused);
        // This may end the arena.
        drop(keep);
    }
}
