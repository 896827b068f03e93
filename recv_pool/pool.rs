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
//! A pool may have several arenas. Each CPU takes buffers from one of them. So CPUs with different
//! arenas do not write the same cache lines for each message that they send. A buffer returns to
//! the arena that it comes from, and the CPU that drops it takes the lock there. A CPU takes from
//! the arenas of others when its own gets no memory at once. The page allocator tries hard only if
//! these have none. As long as they have some, it is asked once for many buffers. The limit is that
//! of all arenas together.
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
    cpu::CpuId,
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
    /// The same, for callers that try again where they may sleep. The pool does not grow, and no
    /// failure is counted. So peers use up no large pieces of memory that interrupts may need.
    FreeOnly,
}

impl From<GrowError> for Error {
    fn from(why: GrowError) -> Self {
        match why {
            GrowError::Limit => ENOSPC,
            GrowError::NoMemory | GrowError::Exhausted | GrowError::Revoked => ENOMEM,
        }
    }
}

/// Effort to get memory for a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// The smallest order is not tried, so there is no reclaim and no use of reserves.
    Easy,
    /// The page allocator may try hard for the smallest order.
    Hard,
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
    /// Number of arenas, a power of two.
    pub(crate) arenas: usize,
}

/// Number of buffers of other arenas that are taken before an arena looks for memory again.
const BORROWS: u32 = 63;

/// Returns the number of this CPU. The caller may be moved to another one at any time.
#[inline]
fn current_cpu() -> usize {
    CpuId::current().as_u32() as usize
}

/// Statistics of a [`Pool`].
#[cfg(rds_kunit)]
pub(crate) struct PoolStats {
    pub(crate) arenas: usize,
    pub(crate) arena: ArenaStats,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) fallbacks: u64,
    /// Pieces of memory that were not found because of [`Pool::refuse_from`].
    pub(crate) denied: u64,
}

/// A pool of equal buffers.
pub(crate) struct Pool {
    /// All have buffers of the same size, for the same domain.
    arenas: KVec<Arc<Arena>>,
    config: PoolConfig,
    smallest: u32,
    limit: Arc<Limit>,
    /// Maximum size because of bounce buffers, in bytes. `usize::MAX` if the device does not
    /// always use them.
    bounced_limit: usize,
    /// A work item has found no memory, see [`Context::Worker`].
    exhausted: Atomic<bool>,
    /// Number of buffers to take from any arena before the next search for memory. 0 while there is
    /// memory. Concurrent changes may get lost, which only moves that search.
    borrows: Atomic<u32>,
    counters: Arc<Counters>,
    /// Page order from which on there is no memory, for tests.
    #[cfg(rds_kunit)]
    scarce: Atomic<u32>,
    #[cfg(rds_kunit)]
    denied: Atomic<u64>,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arena = self.arena_stats();
        f.write_fmt(fmt!(
            "buffer={} arenas={} in_use={} most_in_use={} bytes={} limit={} shards={} \
             empty_shards={} foreign_shards={}",
            self.config.buf_size,
            self.arenas.len(),
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
    /// - `EINVAL` if the smallest shard cannot hold a buffer, or for a wrong number of arenas.
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
        let fits = (1..=smallest_bytes).contains(&(config.buf_size as usize));
        if !fits || !config.arenas.is_power_of_two() {
            return Err(EINVAL);
        }
        let this = Self {
            arenas: Arena::several(config.arenas, pd, queue, config.buf_size)?,
            config,
            smallest,
            limit,
            bounced_limit: pd
                .and_then(|pd| pd.device().bounce_bounds())
                .map_or(usize::MAX, BounceBounds::arena),
            exhausted: Atomic::new(false),
            borrows: Atomic::new(0),
            counters,
            #[cfg(rds_kunit)]
            scarce: Atomic::new(u32::MAX),
            #[cfg(rds_kunit)]
            denied: Atomic::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the bytes of a buffer.
    pub(crate) fn buf_size(&self) -> usize {
        self.config.buf_size as usize
    }

    /// Returns a buffer with undefined contents, or `None` if the limit is reached or memory is
    /// short.
    pub(crate) fn alloc(&self, context: Context) -> Option<BufMut> {
        self.alloc_leaving(0, context)
    }

    /// Returns a buffer like [`Self::alloc`], but leaves `spare` free ones of the pool to other
    /// callers.
    pub(crate) fn alloc_leaving(&self, spare: usize, context: Context) -> Option<BufMut> {
        self.alloc_on(current_cpu(), spare, context)
    }

    /// Returns a buffer like [`Self::alloc_leaving`], or the reason why there is none.
    ///
    /// # Errors
    ///
    /// - [`GrowError`]
    #[inline]
    pub(super) fn try_alloc_leaving(
        &self,
        spare: usize,
        context: Context,
    ) -> Result<BufMut, GrowError> {
        self.try_alloc_on(current_cpu(), spare, context)
    }

    /// Returns a buffer like [`Self::alloc_leaving`] on `cpu`.
    #[inline]
    pub(crate) fn alloc_on(&self, cpu: usize, spare: usize, context: Context) -> Option<BufMut> {
        self.try_alloc_on(cpu, spare, context).ok()
    }

    #[inline]
    fn try_alloc_on(
        &self,
        cpu: usize,
        spare: usize,
        context: Context,
    ) -> Result<BufMut, GrowError> {
        let own = self.arena_of(cpu).ok_or(GrowError::Revoked)?;
        loop {
            if let Some(buf) = Arena::take_one_leaving(own, spare) {
                return Ok(buf);
            }
            if context == Context::FreeOnly {
                return self.take_leaving(spare).ok_or(GrowError::NoMemory);
            }
            if self.arenas.len() > 1 {
                let left = self.borrows.load(Relaxed);
                if left == 0 && self.grow(own, context, Effort::Easy).is_ok() {
                    continue;
                }
                if let Some(buf) = self.take_leaving(spare) {
                    self.borrows
                        .store(left.checked_sub(1).unwrap_or(BORROWS), Relaxed);
                    return Ok(buf);
                }
            }
            if let Err(why) = self.grow(own, context, Effort::Hard) {
                self.count(why);
                return Err(why);
            }
        }
    }

    /// Returns a free buffer. The pool does not grow.
    pub(crate) fn take(&self) -> Option<BufMut> {
        self.arenas.iter().find_map(Arena::take_one)
    }

    /// Returns a free buffer of any arena if all arenas together have more than `spare`.
    #[cold]
    fn take_leaving(&self, spare: usize) -> Option<BufMut> {
        // Callers that get none must not hold a spare buffer, which a frame may need, for a moment.
        if self.arena_stats().free() <= spare {
            return None;
        }
        let buf = self.take()?;
        // Checked with the buffer in hand, so that concurrent callers do not leave less together.
        (self.arena_stats().free() >= spare).then_some(buf)
    }

    /// Returns the arena from which `cpu` takes buffers. There always is one.
    #[inline]
    fn arena_of(&self, cpu: usize) -> Option<&Arc<Arena>> {
        self.arenas.get(cpu & self.arenas.len().wrapping_sub(1))
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
        match self.arena_stats().free() {
            0 => self.add_shard(context),
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
        let own = self.arena_of(current_cpu()).ok_or(GrowError::Revoked)?;
        self.grow(own, context, Effort::Hard)
            .inspect_err(|why| self.count(*why))?;
        // Perhaps nobody uses it. So no buffer returns that would cause a check.
        own.watch_if_needed();
        Ok(())
    }

    /// Adds up to `want` buffers to `out`, as far as it has room, and returns their number. The
    /// lock of an arena is taken once unless a shard is missing.
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
        let own = self.arena_of(current_cpu()).ok_or(GrowError::Revoked)?;
        let mut got = Arena::take(own, want, out);
        while got < want {
            match self.grow(own, context, Effort::Hard) {
                Ok(()) => {}
                Err(why) => {
                    self.count(why);
                    if got == 0 {
                        return Err(why);
                    }
                    break;
                }
            }
            got = got.saturating_add(Arena::take(own, want.saturating_sub(got), out));
        }
        Ok(got)
    }

    /// Adds a shard of the first available order to an arena.
    fn grow(&self, arena: &Arena, context: Context, effort: Effort) -> Result<(), GrowError> {
        if context == Context::Worker && self.exhausted.load(Relaxed) {
            return Err(GrowError::Exhausted);
        }
        let may_sleep = matches!(context, Context::MaySleep | Context::Worker);
        let limit = self.limit.bytes();
        let mut why = GrowError::NoMemory;
        for order in self.config.orders {
            if effort == Effort::Easy && *order == self.smallest {
                break;
            }
            match self.grow_by(arena, *order, limit, may_sleep) {
                Ok(()) => {
                    self.borrows.store(0, Relaxed);
                    let fallback = Some(order) != self.config.orders.first();
                    self.counters.fallbacks.fetch_add(fallback.into(), Relaxed);
                    return Ok(());
                }
                Err(GrowError::Revoked) => return Err(GrowError::Revoked),
                // A smaller shard may be available, or fit into the limit.
                Err(error) => why = error,
            }
        }
        if effort == Effort::Hard && context == Context::Worker && why == GrowError::NoMemory {
            self.exhausted.store(true, Relaxed);
        }
        Err(why)
    }

    /// Counts an allocation that got less than requested.
    #[cold]
    fn count(&self, why: GrowError) {
        let counter = match why {
            GrowError::Limit => &self.counters.refused,
            GrowError::NoMemory => &self.counters.failed,
            GrowError::Exhausted | GrowError::Revoked => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Adds a shard of this order to an arena.
    #[inline]
    fn grow_by(
        &self,
        arena: &Arena,
        order: u32,
        limit: usize,
        may_sleep: bool,
    ) -> Result<(), GrowError> {
        #[cfg(rds_kunit)]
        if order >= self.scarce.load(Relaxed) {
            self.denied.fetch_add(1, Relaxed);
            return Err(GrowError::NoMemory);
        }
        arena.grow(order, self.smallest, limit, may_sleep)
    }

    /// Lets the pool find no memory in pieces of this page order and larger ones. `u32::MAX` ends
    /// that.
    #[cfg(rds_kunit)]
    pub(crate) fn refuse_from(&self, order: u32) {
        self.scarce.store(order, Relaxed);
    }

    /// Returns the sums of the statistics of all arenas.
    pub(crate) fn arena_stats(&self) -> ArenaStats {
        let mut sums = ArenaStats::default();
        self.arenas.iter().for_each(|arena| sums.add(arena.stats()));
        sums
    }

    /// Returns `true` if the queue pairs of this pool's device can use `buf`.
    #[inline]
    pub(crate) fn reaches(&self, buf: &BufMut) -> bool {
        self.arenas.first().is_some_and(|arena| buf.is_for(arena))
    }

    /// Returns the bytes that [`Self::trim`] could free.
    ///
    /// A pool beyond its limit, which was lowered, cannot grow. So it keeps an empty shard: its
    /// buffers may be those that messages have left to frames.
    pub(super) fn trimmable(&self) -> usize {
        let bytes = self
            .arenas
            .iter()
            .map(|arena| arena.trimmable())
            .sum::<usize>();
        match self.arena_stats().bytes > self.limit.bytes() {
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
        let want = want.min(self.trimmable());
        self.arenas.iter().fold(0, |freed: usize, arena| {
            freed.saturating_add(arena.trim(want.saturating_sub(freed)))
        })
    }

    /// Frees memory that was unused since the last call.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cfg(rds_kunit)]
    pub(crate) fn reap(&self) {
        self.arenas.iter().for_each(|arena| arena.reap());
    }

    #[cfg(rds_kunit)]
    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            arenas: self.arenas.len(),
            arena: self.arena_stats(),
            refused: self.counters.refused.load(Relaxed),
            failed: self.counters.failed.load(Relaxed),
            fallbacks: self.counters.fallbacks.load(Relaxed),
            denied: self.denied.load(Relaxed),
        }
    }

    /// Returns `true` if the pool was revoked.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn is_revoked(&self) -> bool {
        self.arenas.first().is_some_and(|arena| arena.is_revoked())
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
        self.arenas.iter().try_for_each(|arena| arena.revoke())
    }
}
