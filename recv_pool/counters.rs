// SPDX-License-Identifier: GPL-2.0

//! Counters of buffer pools.

use crate::kapi::rdma::ArenaStats;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Counters of rare events, shared by all pools of a node.
pub(crate) struct Counters {
    /// Allocations that got less than requested because of the limit.
    pub(super) refused: Atomic<u64>,
    /// Allocations that tried to get memory, and got less than requested because there was none.
    pub(super) failed: Atomic<u64>,
    /// Shards smaller than the preferred size, because of the limit or because there was no memory
    /// of that size.
    pub(super) fallbacks: Atomic<u64>,
    /// Bytes returned to the kernel at its request.
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

    /// Calls `each` with names for `RDS_INFO_COUNTERS`, and values.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let counters = [
            ("ib_pool_refused_limit", &self.refused),
            ("ib_pool_refused_memory", &self.failed),
            ("ib_pool_small_shards", &self.fallbacks),
            ("ib_pool_shrunk_bytes", &self.shrunk),
        ];
        for (name, counter) in counters {
            each(name, counter.load(Relaxed));
        }
    }
}

/// Total memory that a set of pools holds.
#[derive(Default)]
pub(crate) struct PoolUsage {
    bytes: u64,
    bufs: u64,
    foreign: u64,
}

impl PoolUsage {
    /// Adds the memory of a pool, whose arena has these statistics.
    pub(super) fn add(&mut self, arena: ArenaStats) {
        self.bytes = self.bytes.saturating_add(arena.bytes as u64);
        self.bufs = self.bufs.saturating_add(arena.in_use as u64);
        self.foreign = self.foreign.saturating_add(arena.foreign as u64);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls `each` with names for `RDS_INFO_COUNTERS`, and values.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("ib_pool_bytes", self.bytes);
        each("ib_pool_bufs_in_use", self.bufs);
        each("ib_pool_foreign_shards", self.foreign);
    }
}
