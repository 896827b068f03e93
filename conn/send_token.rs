// SPDX-License-Identifier: GPL-2.0

//! Right and duty to look for something to send on a connection.
//!
//! A context that cannot get the lock of the send side queues its message elsewhere, and asks. The
//! first one that asks gets the token and waits for the lock; the others leave. The holder of the
//! token looks for messages before it gives the token back, and again if somebody has asked
//! meanwhile.
//!
//! `tests/loom` also compiles this file.

use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full, //
};

/// The token of a connection: the number of requests since it was free. 64 bits do not overflow.
pub(super) struct SendToken(Atomic<u64>);

/// The token in the hands of its holder, with the number of requests that are answered when the
/// holder has looked.
#[must_use = "the token has to be given back"]
pub(super) struct Holding(u64);

impl SendToken {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Asks for a look at what was queued before. Returns the token if nobody holds it. Otherwise
    /// its holder looks.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn ask(&self) -> Option<Holding> {
        (self.0.fetch_add(1, Full) == 0).then_some(Holding(1))
    }

    /// Gives the token back after a look. Returns it if somebody has asked since: the holder looks
    /// again, and sees what was queued before that request.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn give_back(&self, holding: Holding) -> Option<Holding> {
        match self.0.cmpxchg(holding.0, 0, Full) {
            Ok(_) => None,
            Err(_) => Some(self.take_over()),
        }
    }

    /// Returns the token of another holder, which must not use it any more. The caller looks, and
    /// sees what was queued before the last request.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn take_over(&self) -> Holding {
        Holding(self.0.load(Acquire))
    }
}
