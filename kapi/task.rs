// SPDX-License-Identifier: GPL-2.0

//! The calling process.

use crate::bindings;
use kernel::prelude::*;

/// Fails with EINTR, which nobody will see, if the process is to die: work for it that may be long ends.
/// Process context.
pub(crate) fn check_killed() -> Result {
    // SAFETY: It looks at the calling task alone.
    if unsafe { bindings::rds_is_killed() } {
        return Err(EINTR);
    }
    Ok(())
}
