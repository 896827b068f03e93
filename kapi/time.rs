// SPDX-License-Identifier: GPL-2.0

//! Clocks and random numbers. All functions may be called in any context.
//!
//! A time is a `u64` of nanoseconds: atomics hold it, and `proto/`, which also runs on the host,
//! computes with it. `kernel::time::Instant` of Linux 7.2 and 7.3 can do neither. It gives its
//! value to the kernel crate only (`as_nanos()` is `pub(crate)`), and its sums may panic. Delays
//! and timeouts are milliseconds in a `u32`. A span in code that uses an `Instant` is a `Delta`.

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
