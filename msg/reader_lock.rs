// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to read from a socket.
//!
//! `tests/loom` compiles the file, too.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// The turns of a socket's readers, and whether there is something to read.
///
/// There is one reader at a time, so that order is kept when a message has to be put back.
///
/// A turn lasts as long as the program's memory takes to be there, which may be for ever. So nobody
/// waits for it but in a way that signals and time limits end: whoever finds it taken is woken when
/// it is over.
pub(super) struct ReaderLock {
    /// One of the values below.
    state: Atomic<u32>,
    /// Whether the queue has messages: read without its lock by those who wait for one.
    readable: Atomic<bool>,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and someone has found it so.
const AWAITED: u32 = 2;

impl ReaderLock {
    pub(super) const fn new() -> Self {
        Self {
            state: Atomic::new(FREE),
            readable: Atomic::new(false),
        }
    }

    /// Takes the turn. False if it is another one's, who then tells of its end. Any context.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // Who finds the turn taken is told of its end, unless that has come already.
        while self.state.cmpxchg(FREE, TAKEN, Full).is_err() {
            if !self.is_free() {
                return false;
            }
        }
        true
    }

    /// Whether the turn is free; if not, [`Self::give_back`] tells.
    #[inline]
    fn is_free(&self) -> bool {
        self.state.peek() == FREE || self.await_end()
    }

    fn await_end(&self) -> bool {
        match self.state.cmpxchg(TAKEN, AWAITED, Full) {
            Ok(_) => false,
            Err(now) => now == FREE,
        }
    }

    /// Ends the turn. Returns whether someone is to be woken: one that has found it taken, and
    /// there is something to read. Only for who has it; any context.
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        self.state.xchg(FREE, Full) == AWAITED && self.is_readable()
    }

    /// Remembers whether there is something to read. Called with the queue locked.
    #[inline]
    pub(super) fn note_readable(&self, readable: bool) {
        self.readable.store(readable, Relaxed);
    }

    #[inline]
    fn is_readable(&self) -> bool {
        self.readable.peek()
    }

    /// Whether there is something to read, and nobody else is reading. If only somebody is, whoever
    /// waits is woken when that is over. Any context.
    #[inline]
    pub(super) fn may_read(&self) -> bool {
        self.is_readable() && self.is_free()
    }
}
