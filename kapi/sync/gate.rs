// SPDX-License-Identifier: GPL-2.0

//! Gates: the end of something waits for its users, and lets no more in.

use super::Completion;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    }, //
};

/// Bit of the count that says that the gate is closed.
const CLOSED: u64 = 1 << 63;

/// Time in milliseconds after which [`Gate::close`] looks again.
const LOOK_MS: u32 = 10_000;

/// A count of users, which can be closed. Unlike `Sections`, entering allocates nothing and does
/// not sleep.
#[pin_data]
pub(crate) struct Gate {
    users: Atomic<u64>,
    /// The last user has left a closed gate.
    #[pin]
    is_empty: Completion,
}

impl Gate {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            users: Atomic::new(0),
            is_empty <- Completion::new(),
        })
    }

    /// Adds a user, who calls [`Self::leave`] later. Returns `false`, and adds nobody, if the gate
    /// is closed.
    ///
    /// # Context
    ///
    /// Any context.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        if self.users.fetch_add(1, Full) & CLOSED == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Adds a user on behalf of one who is in, even if the gate is closed.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn join(&self) {
        self.users.fetch_add(1, Full);
    }

    /// Removes a user.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn leave(&self) {
        if self.users.fetch_sub(1, Full) == CLOSED | 1 {
            self.is_empty.signal();
        }
    }

    /// Closes the gate, and waits until there is no user. Called once.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn close(&self) {
        if self.users.fetch_add(CLOSED, Full) == 0 {
            return;
        }
        // Nobody enters any more. So the signal, once there, is final.
        let mut looks = 0u32;
        while self.is_empty.wait(LOOK_MS).is_err() {
            looks = looks.saturating_add(1);
            if looks == 1 {
                pr_warn!("the end of a network namespace or of the module still waits for a use\n");
            }
        }
    }
}
