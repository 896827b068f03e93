// SPDX-License-Identifier: GPL-2.0

//! The calling process.

use crate::bindings;
use kernel::{prelude::*, task::Kuid};

/// Fails with EINTR, which nobody will see, if the process is to die: work for it that may be long ends.
/// Process context.
pub(crate) fn check_killed() -> Result {
    // SAFETY: It looks at the calling task alone.
    if unsafe { bindings::rds_is_killed() } {
        return Err(EINTR);
    }
    Ok(())
}

/// Whose program it is that runs: its effective user in the initial user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserId(u32);

impl UserId {
    /// Process context.
    pub(crate) fn current() -> Self {
        Self(Kuid::current_euid().into_raw().val)
    }

    /// The user as a number, by which [`Self::from_number`] gives it back.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// For tests.
    #[cfg(rds_kunit)]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}
