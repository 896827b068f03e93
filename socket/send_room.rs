// SPDX-License-Identifier: GPL-2.0

//! Use of a socket's send buffer.
//!
//! `tests/loom` also compiles this file.

use crate::kapi::sync::ReadOnce;
use kernel::sync::atomic::{
    Atomic,
    Full, //
};

/// Bytes sent and not yet acknowledged, or not yet read on the loop transport.
pub(super) struct SendRoom(Atomic<usize>);

impl SendRoom {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns the bytes in use.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.0.read_once()
    }

    /// Charges `bytes` if less than `limit` bytes are in use. Returns `true` if so.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn charge(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.0.read_once();
        while old < limit {
            match self.0.cmpxchg(old, old.saturating_add(bytes), Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Releases `bytes`. Returns `true` if waiters for room must be woken.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn credit(&self, bytes: usize, limit: impl FnOnce() -> usize) -> bool {
        // Full order: a waiter either sees the room or is seen waiting, also if the limit was just
        // lowered.
        let old = self.0.fetch_sub(bytes, Full);
        let limit = limit();
        // Nothing waits while there is room. When a limit is raised the kernel wakes the waiters.
        old >= limit && old.wrapping_sub(bytes) < limit
    }
}
