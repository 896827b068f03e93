// SPDX-License-Identifier: GPL-2.0

//! The calling process.

use crate::bindings;
use kernel::prelude::*;

/// Fails with EINTR, which nobody will see, if the process is to die: work for it that may be long ends.
/// Process context.
pub(crate) fn check_killed() -> Result {
    // SAFETY: It looks at the calling task alone.
    if unsafe { bindings::rds_rust_is_killed() } {
        return Err(EINTR);
    }
    Ok(())
}

/// Whether the calling program is exempt from limits of users: it has `CAP_SYS_RESOURCE` in the
/// initial user namespace. Process context.
pub(crate) fn is_resource_admin() -> bool {
    // SAFETY: It looks at the calling task alone.
    unsafe { bindings::rds_rust_is_resource_admin() }
}

/// Runs `f`, for which no allocation, not even of other parts of the kernel, waits for I/O: that may wait for a message
/// that `f` is to move. All workers are to run so. Process context.
pub(crate) fn without_io<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: It changes the calling task alone, until `rds_rust_end_noio`.
    let before = unsafe { bindings::rds_rust_begin_noio() };
    let result = f();
    // SAFETY: `before` is what the task was like, which is the same one.
    unsafe { bindings::rds_rust_end_noio(before) };
    result
}

/// The user that a program counts for, by his number in the initial user namespace: its effective
/// user, or who has made the outermost user namespace that it is in. Those that root has made do
/// not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserId(u32);

impl UserId {
    /// Process context.
    pub(crate) fn current() -> Self {
        // SAFETY: It looks at the calling task alone.
        Self(unsafe { bindings::rds_rust_current_payer() })
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
