// SPDX-License-Identifier: GPL-2.0

//! Bounds on the bounce buffers (swiotlb) that this module holds.
//!
//! A device that cannot reach all memory uses bounce buffers. The kernel has little memory for
//! them, and all devices need some, for example the disk. This module may hold one half: shards
//! three eighths, and local memory of operations one eighth.
//!
//! `tests/host` also compiles this file.

/// The size of all bounce buffers, from which the bounds follow.
///
/// On x86-64 all devices share the same bounce buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BounceBounds {
    total: usize,
}

impl BounceBounds {
    /// Creates the bounds for a kernel with bounce buffers of `total` bytes. Returns `None` if
    /// there are none.
    pub(crate) const fn new(total: usize) -> Option<Self> {
        match total {
            0 => None,
            total => Some(Self { total }),
        }
    }

    /// Returns the maximum for the shards of the arenas of one pool, in bytes.
    pub(crate) const fn arena(self) -> usize {
        self.total / 8
    }

    /// Returns the maximum for local memory of operations, in bytes.
    pub(crate) const fn operations(self) -> usize {
        self.total / 8
    }

    /// Returns the maximum for the shards of all arenas, in bytes.
    const fn shards(self) -> usize {
        self.total / 8 * 3
    }

    /// Returns `true` if a pool whose arenas have `own` bytes of bounce buffers may take `more`.
    /// All arenas, with these, have `held` bytes.
    ///
    /// A pool takes no more than it leaves to others. Otherwise a few pools would exhaust the
    /// bounce buffers, and a device whose receives need many could not send.
    pub(crate) const fn has_room(self, own: usize, held: usize, more: usize) -> bool {
        let own = own.saturating_add(more);
        let left = self.shards().saturating_sub(held.saturating_add(more));
        own <= self.arena() && own <= left
    }
}
