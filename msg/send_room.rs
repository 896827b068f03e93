// SPDX-License-Identifier: GPL-2.0

//! What is taken of a socket's send buffer.
//!
//! `tests/loom` compiles the file, too.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full};

/// Bytes sent and not yet acknowledged, or not yet read on the loop transport.
pub(super) struct SendRoom(Atomic<usize>);

impl SendRoom {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// How much is taken, in bytes. Any context.
    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.0.peek()
    }

    /// Takes so many bytes if fewer than `limit` are taken. Any context.
    pub(super) fn charge(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.0.peek();
        while old < limit {
            match self.0.cmpxchg(old, old.saturating_add(bytes), Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Gives so many bytes back. Returns whether those who wait for room are to be woken. Any
    /// context.
    pub(super) fn credit(&self, bytes: usize, limit: impl FnOnce() -> usize) -> bool {
        // Full order: who waits either sees the room or is seen waiting, also if the limit was just
        // lowered.
        let old = self.0.fetch_sub(bytes, Full);
        let limit = limit();
        // While there is room nobody waits. For a limit that is raised the kernel wakes them.
        old >= limit && old.wrapping_sub(bytes) < limit
    }
}
