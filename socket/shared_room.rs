// SPDX-License-Identifier: GPL-2.0

//! Use of a limited amount of memory that many share.
//!
//! `tests/loom` also compiles this file.

use crate::kapi::sync::ReadOnce;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// Bytes in use, and a flag that is set when there was no room.
///
/// Once the room is full, there is room again when an eighth of it is free. Thousands may wait, and
/// all are woken then. Until then no charge succeeds, so waiters do not miss room that others find.
pub(crate) struct SharedRoom {
    taken: Atomic<usize>,
    full: Atomic<bool>,
}

/// Returns the number of bytes below which a full room has room again.
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

    /// Returns the number of bytes from which on there is no room.
    #[inline]
    fn most(&self, limit: usize) -> usize {
        if self.full.read_once() {
            low(limit)
        } else {
            limit
        }
    }

    /// Charges `bytes` if less than the limit is in use. The last charge may exceed the limit.
    /// Returns `false` if there is no room. Then [`Self::credit`] reports when there is.
    ///
    /// # Context
    ///
    /// Any context.
    // Not inlined into the path of messages that need no such room.
    #[inline(never)]
    pub(crate) fn charge(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.taken.read_once();
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

    /// Returns `true` if there is room. Otherwise [`Self::credit`] reports when there is.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline(never)]
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        if self.taken.read_once() < self.most(limit) {
            return true;
        }
        // Full order: a concurrent `credit` either sees the flag, or its bytes are seen below.
        self.full.xchg(true, Full);
        self.taken.load(Relaxed) < low(limit)
    }

    /// Releases `bytes`. Returns `true` if waiters for room must be woken.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn credit(&self, bytes: usize, limit: impl FnOnce() -> usize) -> bool {
        let left = self.taken.fetch_sub(bytes, Full).wrapping_sub(bytes);
        // If several calls release bytes at once, one of them reports it.
        self.full.read_once() && left < low(limit()) && self.full.xchg(false, Full)
    }
}
