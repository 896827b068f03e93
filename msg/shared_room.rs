// SPDX-License-Identifier: GPL-2.0

//! What is taken of a room that many share.
//!
//! `tests/loom` compiles the file, too.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Bytes that are taken, and whether somebody has found them to be too many.
///
/// Once it is full there is room again when an eighth is free: thousands may wait, and all are
/// woken for that. Until then nobody gets in, so that who waits does not miss what others find.
pub(crate) struct SharedRoom {
    taken: Atomic<usize>,
    full: Atomic<bool>,
}

/// As much may be taken when there is room again.
const fn low(limit: usize) -> usize {
    limit - limit / 8
}

impl SharedRoom {
    pub(crate) const fn new() -> Self {
        Self {
            taken: Atomic::new(0),
            full: Atomic::new(false),
        }
    }

    /// From how many bytes on there is no room.
    #[inline]
    fn most(&self, limit: usize) -> usize {
        if self.full.peek() {
            low(limit)
        } else {
            limit
        }
    }

    /// Takes so many bytes if fewer than `limit` are taken, of which the last ones may go over it.
    /// If not, [`Self::credit`] says when there is room. Any context.
    // Not inlined in what is done for messages that need no such room.
    #[inline(never)]
    pub(crate) fn charge(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.taken.peek();
        loop {
            if old >= self.most(limit) && !self.has_room(limit) {
                return false;
            }
            match self.taken.cmpxchg(old, old.saturating_add(bytes), Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Whether there is room. If not, [`Self::credit`] says when there is. Any context.
    #[inline(never)]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        if self.taken.peek() < self.most(limit) {
            return true;
        }
        // Full order: whoever gives back either sees this, or was before the look below.
        self.full.xchg(true, Full);
        self.taken.load(Relaxed) < low(limit)
    }

    /// Gives so many bytes back. Returns whether those who wait for room are to be woken. Any
    /// context.
    pub(crate) fn credit(&self, bytes: usize, limit: impl FnOnce() -> usize) -> bool {
        let left = self.taken.fetch_sub(bytes, Full).wrapping_sub(bytes);
        // One of those who give back at once tells.
        self.full.peek() && left < low(limit()) && self.full.xchg(false, Full)
    }
}
