// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to read from a socket.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full};

/// There is one reader at a time, so that order is kept when a message has to be put back.
///
/// A turn lasts as long as the program's memory takes to be there, which may be for ever. So nobody waits for it but in
/// a way that signals and time limits end: whoever finds it taken is woken when it is over.
pub(super) struct Turn(Atomic<u32>);

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and someone has found it so.
const AWAITED: u32 = 2;

impl Turn {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(FREE))
    }

    /// Takes the turn, if it is free. Any context.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.0.cmpxchg(FREE, TAKEN, Full).is_ok()
    }

    /// Whether the turn is free; if not, [`Self::give_back`] tells. Any context.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.peek() == FREE || self.await_end()
    }

    fn await_end(&self) -> bool {
        match self.0.cmpxchg(TAKEN, AWAITED, Full) {
            Ok(_) => false,
            Err(now) => now == FREE,
        }
    }

    /// Ends the turn. Returns whether someone has found it taken. Only for who has it; any context.
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        self.0.xchg(FREE, Full) == AWAITED
    }
}
