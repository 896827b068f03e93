// SPDX-License-Identifier: GPL-2.0

//! Pools of equal buffers, one DMA mapping for many of them.
//!
//! # Operation
//!
//! A pool cuts its buffers from shards of 64 KiB. Large contiguous memory is an optimisation, never
//! a need: when there is none at hand the pool takes the next smaller order, down to the smallest
//! that it was given, and only that one is worth an effort of the page allocator. What a pool may
//! hold is limited; an allocation beyond that is refused and counted. Memory that is not needed goes
//! back to the kernel after a while, and at once when the kernel asks for it.
//!
//! The mechanics of slots, shards and mappings are in [`Arena`]; this is the policy.
//!
//! # Ownership
//!
//! Buffers outlive the pool. What they hold is freed with the last buffer of a shard.

use super::{Counters, Limit};
use crate::kapi::{
    rdma::{Arena, ArenaStats, Batch, BufMut, GrowError, Pd},
    sync::OwnedQueue,
};
use kernel::{
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// Whether an allocation may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Process context, no spinlock held.
    MaySleep,
    /// Any but a hard interrupt.
    Atomic,
}

/// The page orders of shards, in the order in which they are tried: 64 KiB to 8 KiB.
pub(crate) const SHARD_ORDERS: &[u32] = &[4, 3, 2, 1];

/// What a [`Pool`] is like.
#[derive(Clone, Copy)]
pub(crate) struct PoolConfig {
    /// Bytes of a buffer.
    pub(crate) buf_size: u32,
    /// Page orders of shards, most wanted first; [`SHARD_ORDERS`] unless there is a reason.
    pub(crate) orders: &'static [u32],
}

/// Numbers about a [`Pool`] and its counters.
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
    counters: Arc<Counters>,
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
            self.limit.bytes(),
            arena.shards,
            arena.empty,
            arena.foreign
        ))
    }
}

impl Pool {
    /// A pool for queue pairs of `pd`; without one its buffers cannot be posted. Without a queue
    /// memory that is not needed waits until the kernel asks for it. All shards together take no more than
    /// `limit`, whatever that is when there is to be another one. May sleep.
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
            counters,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// One buffer, with old contents, or `None` if the limit is reached or memory is short.
    pub(crate) fn alloc(&self, context: Context) -> Option<BufMut> {
        loop {
            let buf = Arena::take_one(&self.arena);
            if buf.is_some() || self.grow(context).is_err() {
                return buf;
            }
        }
    }

    /// Adds up to `want` buffers to `out`, as far as it has room, and returns how many. If there is
    /// none to be had, it says why. The pool's lock is taken once unless a shard is missing.
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

    /// Adds a shard of the first order that is to be had.
    fn grow(&self, context: Context) -> Result<(), GrowError> {
        let may_sleep = context == Context::MaySleep;
        let limit = self.limit.bytes();
        let mut why = GrowError::NoMemory;
        for order in self.config.orders {
            match self.arena.grow(*order, self.smallest, limit, may_sleep) {
                Ok(()) => {
                    let fallback = Some(order) != self.config.orders.first();
                    self.counters.fallbacks.fetch_add(fallback.into(), Relaxed);
                    return Ok(());
                }
                Err(GrowError::Revoked) => return Err(GrowError::Revoked),
                // A smaller shard may be had, or fit in the limit.
                Err(error) => why = error,
            }
        }
        let counter = match why {
            GrowError::Limit => &self.counters.refused,
            _ => &self.counters.failed,
        };
        counter.fetch_add(1, Relaxed);
        Err(why)
    }

    pub(crate) fn arena_stats(&self) -> ArenaStats {
        self.arena.stats()
    }

    /// Whether what can reach the buffers of this pool can reach `buf`.
    #[inline]
    pub(crate) fn reaches(&self, buf: &BufMut) -> bool {
        buf.is_for(&self.arena)
    }

    /// Bytes that [`Self::trim`] could give back.
    pub(super) fn trimmable(&self) -> usize {
        self.arena.trimmable()
    }

    /// Gives empty shards back to the kernel, until `want` bytes are reached, and returns how many
    /// bytes that were. Any context but a hard interrupt.
    pub(crate) fn trim(&self, want: usize) -> usize {
        self.arena.trim(want)
    }

    /// Gives back what was not needed since the last call. Any context but a hard interrupt.
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

    /// Whether the pool was revoked. Any context but a hard interrupt.
    pub(super) fn is_revoked(&self) -> bool {
        self.arena.is_revoked()
    }

    /// Ends the pool's use before its device goes: nothing is mapped any more when this returns,
    /// and no buffer can be had. Buffers that are in use stay readable. `EBUSY`, and nothing
    /// happened, while the protection domain has a queue pair. Process context.
    pub(crate) fn revoke(&self) -> Result {
        self.arena.revoke()
    }
}
