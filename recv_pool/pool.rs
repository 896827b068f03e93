// SPDX-License-Identifier: GPL-2.0

//! Pools of equal buffers. Many buffers share one DMA mapping.
//!
//! # Operation
//!
//! A pool cuts its buffers from shards of 64 KiB. Large contiguous memory is an optimisation and
//! never required. If there is none, the pool tries the next smaller order, down to the smallest of
//! its configuration. Only for the smallest may the page allocator try hard.
//!
//! The size of a pool is limited; an allocation beyond the limit is refused and counted. Unused
//! memory returns to the kernel after a while, or at once when the kernel asks for it.
//!
//! [`Arena`] implements slots, shards and mappings. This file is the policy.
//!
//! # Ownership
//!
//! Buffers outlive the pool. A shard is freed with its last buffer.

use super::{
    Counters,
    Limit, //
};
use crate::kapi::{
    rdma::{
        Arena,
        ArenaStats,
        Batch,
        BounceBounds,
        BufMut,
        GrowError,
        Pd, //
    },
    sync::OwnedQueue, //
};
use kernel::{
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Allocation context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Process context, no spinlock held.
    MaySleep,
    /// The same, for the work item that serves all connections of a device. After an allocation
    /// has found no memory, no other one tries before [`Pool::begin_check`]: each would try hard.
    /// They fail with [`GrowError::Exhausted`].
    Worker,
    /// Any context except hard interrupt.
    Atomic,
}

/// Page orders of shards in the order of preference: 64 KiB to 8 KiB.
pub(crate) const SHARD_ORDERS: &[u32] = &[4, 3, 2, 1];

/// Bytes of the largest shard.
const SHARD_BYTES: usize = PAGE_SIZE << 4;

/// Configuration of a [`Pool`].
#[derive(Clone, Copy)]
pub(crate) struct PoolConfig {
    /// Bytes of a buffer.
    pub(crate) buf_size: u32,
    /// Page orders of shards, preferred ones first. The smallest must hold a buffer.
    pub(crate) orders: &'static [u32],
}

/// Statistics of a [`Pool`].
#[cfg(rds_kunit)]
pub(crate) struct PoolStats {
    pub(crate) arena: ArenaStats,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) fallbacks: u64,
}

/// A pool of equal buffers.
pub(crate) struct Pool {
    arena: Arc<Arena>,
    config: PoolConfig,
    smallest: u32,
    limit: Arc<Limit>,
    /// Maximum size because of bounce buffers, in bytes. `usize::MAX` if the device does not
    /// always use them.
    bounced_limit: usize,
    /// A work item has found no memory, see [`Context::Worker`].
    exhausted: Atomic<bool>,
    counters: Arc<Counters>,
    /// Page order from which on there is no memory, for tests.
    #[cfg(rds_kunit)]
    scarce: Atomic<u32>,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arena = self.arena.stats();
        f.write_fmt(fmt!(
            "buffer={} in_use={} most_in_use={} bytes={} limit={} shards={} empty_shards={} foreign_shards={}",
            self.config.buf_size,
            arena.in_use,
            arena.high_water,
            arena.bytes,
            self.limit.bytes().min(self.bounced_limit),
            arena.shards,
            arena.empty,
            arena.foreign
        ))
    }
}

impl Pool {
    /// Creates an empty pool for queue pairs of `pd`. Without `pd` the buffers cannot be posted.
    ///
    /// Without `queue`, unused memory is only returned when the kernel asks for it. `limit` bounds
    /// the shards of this pool together, and is read whenever one is added.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the smallest shard cannot hold a buffer.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        pd: Option<&Pd>,
        queue: Option<Arc<OwnedQueue>>,
        limit: Arc<Limit>,
        counters: Arc<Counters>,
        config: PoolConfig,
    ) -> Result<Arc<Self>> {
        let smallest = config.orders.iter().copied().min().ok_or(EINVAL)?;
        let smallest_bytes = PAGE_SIZE.checked_shl(smallest).ok_or(EINVAL)?;
        if config.buf_size == 0 || config.buf_size as usize > smallest_bytes {
            return Err(EINVAL);
        }
        let this = Self {
            arena: Arena::new(pd, queue, config.buf_size)?,
            config,
            smallest,
            limit,
            bounced_limit: pd
                .and_then(|pd| pd.device().bounce_bounds())
                .map_or(usize::MAX, BounceBounds::arena),
            exhausted: Atomic::new(false),
            counters,
            #[cfg(rds_kunit)]
            scarce: Atomic::new(u32::MAX),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns a buffer with undefined contents, or `None` if the limit is reached or memory is
    /// short.
    pub(crate) fn alloc(&self, context: Context) -> Option<BufMut> {
        self.alloc_leaving(0, context)
    }

    /// Returns a buffer like [`Self::alloc`], but leaves `spare` free ones to other callers.
    pub(crate) fn alloc_leaving(&self, spare: usize, context: Context) -> Option<BufMut> {
        loop {
            let buf = Arena::take_one_leaving(&self.arena, spare);
            if buf.is_some() || self.grow(context).is_err() {
                return buf;
            }
        }
    }

    /// Returns a free buffer. The pool does not grow.
    pub(super) fn take(&self) -> Option<BufMut> {
        Arena::take_one(&self.arena)
    }

    /// Allows a work item to make the pool grow again, see [`Context::Worker`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn begin_check(&self) {
        self.exhausted.store(false, Relaxed);
    }

    /// Adds a shard unless a buffer is free.
    ///
    /// # Errors
    ///
    /// - [`GrowError`]
    ///
    /// # Context
    ///
    /// Process context without a spinlock, unless `context` is [`Context::Atomic`].
    pub(crate) fn make_room(&self, context: Context) -> Result<(), GrowError> {
        match self.arena.stats().free() {
            0 => self.grow(context),
            _ => Ok(()),
        }
    }

    /// Adds a shard, even if buffers are free.
    ///
    /// # Errors
    ///
    /// - [`GrowError`]
    ///
    /// # Context
    ///
    /// Process context without a spinlock, unless `context` is [`Context::Atomic`].
    pub(crate) fn add_shard(&self, context: Context) -> Result<(), GrowError> {
        self.grow(context)?;
        // Perhaps nobody uses it. So no buffer returns that would cause a check.
        self.arena.watch_if_needed();
        Ok(())
    }

    /// Adds up to `want` buffers to `out`, as far as it has room, and returns their number. The
    /// pool's lock is taken once unless a shard is missing.
    ///
    /// # Errors
    ///
    /// [`GrowError`] if no buffer was available.
    pub(crate) fn alloc_many(
        &self,
        want: usize,
        context: Context,
        out: &mut Batch,
    ) -> Result<usize, GrowError> {
        let want = want.min(out.room());
        let mut got = Arena::take(&self.arena, want, out);
        while got < want {
            match self.grow(context) {
                Ok(()) => {}
                Err(why) if got == 0 => return Err(why),
                Err(_) => break,
            }
            got = got.saturating_add(Arena::take(&self.arena, want.saturating_sub(got), out));
        }
        Ok(got)
    }

    /// Adds a shard of the first available order.
    fn grow(&self, context: Context) -> Result<(), GrowError> {
        if context == Context::Worker && self.exhausted.load(Relaxed) {
            return Err(GrowError::Exhausted);
        }
        let may_sleep = context != Context::Atomic;
        let limit = self.limit.bytes();
        let mut why = GrowError::NoMemory;
        for order in self.config.orders {
            match self.grow_by(*order, limit, may_sleep) {
                Ok(()) => {
                    let fallback = Some(order) != self.config.orders.first();
                    self.counters.fallbacks.fetch_add(fallback.into(), Relaxed);
                    return Ok(());
                }
                Err(GrowError::Revoked) => return Err(GrowError::Revoked),
                // A smaller shard may be available, or fit into the limit.
                Err(error) => why = error,
            }
        }
        let counter = match why {
            GrowError::Limit => &self.counters.refused,
            _ => &self.counters.failed,
        };
        counter.fetch_add(1, Relaxed);
        if context == Context::Worker && why == GrowError::NoMemory {
            self.exhausted.store(true, Relaxed);
        }
        Err(why)
    }

    /// Adds a shard of this order.
    #[inline]
    fn grow_by(&self, order: u32, limit: usize, may_sleep: bool) -> Result<(), GrowError> {
        #[cfg(rds_kunit)]
        if order >= self.scarce.load(Relaxed) {
            return Err(GrowError::NoMemory);
        }
        self.arena.grow(order, self.smallest, limit, may_sleep)
    }

    /// Lets the pool find no memory in pieces of this page order and larger ones. `u32::MAX` ends
    /// that.
    #[cfg(rds_kunit)]
    pub(crate) fn refuse_from(&self, order: u32) {
        self.scarce.store(order, Relaxed);
    }

    pub(crate) fn arena_stats(&self) -> ArenaStats {
        self.arena.stats()
    }

    /// Returns `true` if the queue pairs of this pool's device can use `buf`.
    #[inline]
    pub(crate) fn reaches(&self, buf: &BufMut) -> bool {
        buf.is_for(&self.arena)
    }

    /// Returns the bytes that [`Self::trim`] could free.
    ///
    /// A pool beyond its limit, which was lowered, cannot grow. So it keeps an empty shard: its
    /// buffers may be those that messages have left to frames.
    pub(super) fn trimmable(&self) -> usize {
        let bytes = self.arena.trimmable();
        match self.arena.stats().bytes > self.limit.bytes() {
            true => bytes.saturating_sub(SHARD_BYTES),
            false => bytes,
        }
    }

    /// Frees empty shards until at least `want` bytes are freed. Returns the freed bytes.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn trim(&self, want: usize) -> usize {
        self.arena.trim(want.min(self.trimmable()))
    }

    /// Frees memory that was unused since the last call.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cfg(rds_kunit)]
    pub(crate) fn reap(&self) {
        self.arena.reap();
    }

    #[cfg(rds_kunit)]
    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            arena: self.arena.stats(),
            refused: self.counters.refused.load(Relaxed),
            failed: self.counters.failed.load(Relaxed),
            fallbacks: self.counters.fallbacks.load(Relaxed),
        }
    }

    /// Returns `true` if the pool was revoked.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn is_revoked(&self) -> bool {
        self.arena.is_revoked()
    }

    /// Revokes the pool before its device is removed. Afterwards nothing is mapped, and allocations
    /// fail. Buffers in use stay readable.
    ///
    /// # Errors
    ///
    /// - `EBUSY`, without any change, while the protection domain has a queue pair.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn revoke(&self) -> Result {
        self.arena.revoke()
    }
}
