// SPDX-License-Identifier: GPL-2.0

//! Limit on the bounce buffers that shards hold.
//!
//! A device that cannot reach all memory uses bounce buffers (swiotlb). The kernel has little
//! memory for them, and all devices need some for a short time, for example the disk. A shard holds
//! its bounce buffers as long as it is mapped, and the number of shards also depends on peers.

use kernel::sync::atomic::{Atomic, Relaxed};

/// Divisor of all bounce buffers: the shards of all arenas together may hold one half.
const OF_ALL: usize = 2;
/// Divisor of all bounce buffers: the shards of one arena may hold one eighth. So a device has some
/// left for sending, no matter how much it receives.
const OF_ARENA: usize = 8;

/// Bounce buffers that all shards hold, in bytes.
static HELD: Atomic<usize> = Atomic::new(0);

/// Bounce buffers of a shard.
pub(super) struct Bounced {
    bytes: usize,
    all: usize,
}

impl Bounced {
    /// Charges `bytes` of the `all` bytes that the kernel has. Returns `None` if shards would hold
    /// too many.
    pub(super) fn charge(bytes: usize, all: usize) -> Option<Self> {
        let before = HELD.fetch_add(bytes, Relaxed);
        let this = Self { bytes, all };
        (before.saturating_add(bytes) <= all / OF_ALL).then_some(this)
    }

    /// Returns the maximum that the shards of one arena may hold, in bytes.
    pub(super) fn share_of_arena(&self) -> usize {
        self.all / OF_ARENA
    }
}

impl Drop for Bounced {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Relaxed);
    }
}
