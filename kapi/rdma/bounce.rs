// SPDX-License-Identifier: GPL-2.0

//! A bound of bounce buffers that shards hold.
//!
//! A device that does not get at all memory by itself is given bounce buffers. A kernel has little memory for them, in
//! which all devices need some for a moment: the disk's, too. A shard has its own for as long as it is mapped, and how
//! many shards there are is also for peers to say.

use kernel::sync::atomic::{Atomic, Relaxed};

/// The part of all bounce buffers that shards of all arenas may hold: the half.
const OF_ALL: usize = 2;
/// The part that those of one arena may hold, so that a device has some for what it sends whatever it receives.
const OF_ARENA: usize = 8;

/// What shards hold, in bytes.
static HELD: Atomic<usize> = Atomic::new(0);

/// Bounce buffers of a shard.
pub(super) struct Bounced {
    bytes: usize,
    all: usize,
}

impl Bounced {
    /// Accounts for `bytes`, of `all` that a kernel has. `None` if shards would hold too many.
    pub(super) fn charge(bytes: usize, all: usize) -> Option<Self> {
        let before = HELD.fetch_add(bytes, Relaxed);
        let this = Self { bytes, all };
        (before.saturating_add(bytes) <= all / OF_ALL).then_some(this)
    }

    /// The most that an arena may hold of them.
    pub(super) fn share_of_arena(&self) -> usize {
        self.all / OF_ARENA
    }
}

impl Drop for Bounced {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Relaxed);
    }
}
