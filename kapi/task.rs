// SPDX-License-Identifier: GPL-2.0

//! Properties of the calling task.

use crate::bindings;
use kernel::prelude::*;

/// Checks that the calling process has no fatal signal. Long work for it is aborted otherwise.
///
/// # Errors
///
/// - `EINTR` if a fatal signal is pending. The program does not see this error, because it dies.
///
/// # Context
///
/// Process context.
pub(crate) fn check_killed() -> Result {
    // SAFETY: The function only reads the calling task.
    if unsafe { bindings::rds_rust_is_killed() } {
        return Err(EINTR);
    }
    Ok(())
}

/// Returns `true` if the calling program is exempt from limits of users: it has `CAP_SYS_RESOURCE`
/// in the initial user namespace.
///
/// # Context
///
/// Process context.
pub(crate) fn is_resource_admin() -> bool {
    // SAFETY: The function only reads the calling task.
    unsafe { bindings::rds_rust_is_resource_admin() }
}

/// Runs `f` so that no allocation in it waits for I/O, including those of other kernel code.
///
/// That I/O might wait for a message that `f` is to transfer. All workers have to use this
/// function.
///
/// # Context
///
/// Process context.
pub(crate) fn without_io<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: The function only changes the calling task, until `rds_rust_end_noio` restores it.
    let before = unsafe { bindings::rds_rust_begin_noio() };
    let result = f();
    // SAFETY: `before` is the earlier state of the calling task, which is the same one.
    unsafe { bindings::rds_rust_end_noio(before) };
    result
}

/// The user to whom a program is charged, as a number in the initial user namespace.
///
/// It is the owner of the outermost user namespace of the program that root does not own. Without
/// such a namespace it is the effective user of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserId(u32);

impl UserId {
    /// All peers together, in place of a user. No program has this number, which is invalid.
    pub(crate) const PEERS: Self = Self(u32::MAX);

    /// Returns the user of the calling program.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn current() -> Self {
        // SAFETY: The function only reads the calling task.
        Self(unsafe { bindings::rds_rust_current_user() })
    }

    /// Returns the user as a number, for [`Self::from_number`].
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Creates a user for a test.
    #[cfg(rds_kunit)]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}
