// SPDX-License-Identifier: GPL-2.0

//! Clock and randomness.

use crate::bindings;

/// Nanoseconds of the monotonic clock. Any context.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_ktime_get_ns() }
}

/// Nanoseconds since 1970. Any context.
pub(crate) fn real_ns() -> u64 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_ktime_get_real_ns() }
}

/// 32 random bits. Any context.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_random_u32() }
}
