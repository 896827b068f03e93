// SPDX-License-Identifier: GPL-2.0

//! Lock that serialises the readers of a socket.
//!
//! `tests/loom` also compiles this file.

use crate::kapi::sync::ReadOnce;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// Serialises readers of a socket, and notes whether there is something to read.
///
/// One reader at a time keeps the order when a message is put back after a copy fault. The lock is
/// held across page faults, which may block indefinitely. So waiters must sleep interruptibly and
/// with a timeout. A reader that finds the lock taken is woken when it is released.
pub(super) struct ReaderLock {
    /// One of the values below.
    state: Atomic<u32>,
    /// The queue has messages. Waiters read it without the queue's lock.
    readable: Atomic<bool>,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and another reader waits for it.
const AWAITED: u32 = 2;

impl ReaderLock {
    pub(super) const fn new() -> Self {
        Self {
            state: Atomic::new(FREE),
            readable: Atomic::new(false),
        }
    }

    /// Takes the lock. Returns `false` if another reader has it, who then reports its release.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // A reader that finds the lock taken is notified of its release, unless that has happened
        // already.
        while self.state.cmpxchg(FREE, TAKEN, Full).is_err() {
            if !self.is_free() {
                return false;
            }
        }
        true
    }

    /// Returns `true` if the lock is free. Otherwise [`Self::give_back`] reports its release.
    #[inline]
    fn is_free(&self) -> bool {
        self.state.read_once() == FREE || self.await_end()
    }

    fn await_end(&self) -> bool {
        match self.state.cmpxchg(TAKEN, AWAITED, Full) {
            Ok(_) => false,
            Err(now) => now == FREE,
        }
    }

    /// Releases the lock. Returns `true` if a waiter must be woken: one found the lock taken, and
    /// there is something to read.
    ///
    /// # Context
    ///
    /// Any context, by the owner of the lock.
    #[inline]
    pub(super) fn give_back(&self) -> bool {
        self.state.xchg(FREE, Full) == AWAITED && self.is_readable()
    }

    /// Notes whether there is something to read. Called with the queue locked.
    #[inline]
    pub(super) fn note_readable(&self, readable: bool) {
        self.readable.store(readable, Relaxed);
    }

    #[inline]
    fn is_readable(&self) -> bool {
        self.readable.read_once()
    }

    /// Returns `true` if there is something to read and no other reader is active. If only another
    /// reader prevents it, waiters are woken when that one is done.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn may_read(&self) -> bool {
        self.is_readable() && self.is_free()
    }
}
