// SPDX-License-Identifier: GPL-2.0

//! What happened to pools, counted.

use super::Pool;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Counters of rare events, which all pools of a node share.
pub(crate) struct Counters {
    /// Allocations that got less than they wanted because of the limit.
    pub(super) refused: Atomic<u64>,
    /// Allocations that got less because there was no memory.
    pub(super) failed: Atomic<u64>,
    /// Shards smaller than wanted, because there was no memory of the wanted size or because of the
    /// limit.
    pub(super) fallbacks: Atomic<u64>,
    /// Bytes that went back to the kernel because it asked.
    pub(super) shrunk: Atomic<u64>,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            refused: Atomic::new(0),
            failed: Atomic::new(0),
            fallbacks: Atomic::new(0),
            shrunk: Atomic::new(0),
        }
    }

    /// Names for `RDS_INFO_COUNTERS`, and values.
    fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("ib_pool_refused_limit", &self.refused),
            ("ib_pool_refused_memory", &self.failed),
            ("ib_pool_small_shards", &self.fallbacks),
            ("ib_pool_shrunk_bytes", &self.shrunk),
        ]
        .map(|(name, counter)| (name, counter.load(Relaxed)))
        .into_iter()
    }
}

/// The sum of what some pools hold.
#[derive(Default)]
pub(crate) struct Holdings {
    bytes: u64,
    bufs: u64,
    foreign: u64,
}

impl Holdings {
    pub(super) fn add(&mut self, pool: &Pool) {
        let arena = pool.arena_stats();
        self.bytes = self.bytes.saturating_add(arena.bytes as u64);
        self.bufs = self.bufs.saturating_add(arena.in_use as u64);
        self.foreign = self.foreign.saturating_add(arena.foreign as u64);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Names for `RDS_INFO_COUNTERS`, and values: what is held, then what was counted.
    pub(crate) fn report(&self, counters: &Counters, each: &mut dyn FnMut(&'static str, u64)) {
        each("ib_pool_bytes", self.bytes);
        each("ib_pool_bufs_in_use", self.bufs);
        each("ib_pool_foreign_shards", self.foreign);
        counters.iter().for_each(|(name, value)| each(name, value));
    }
}
