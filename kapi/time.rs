// SPDX-License-Identifier: GPL-2.0

//! Clocks and random numbers. All functions may be called in any context.

use crate::bindings;

/// Returns the monotonic clock in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_ktime_get_ns() }
}

/// Returns the wall-clock time in nanoseconds since 1970.
pub(crate) fn real_ns() -> u64 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_ktime_get_real_ns() }
}

/// Returns 32 random bits.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_random_u32() }
}
