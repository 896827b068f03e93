// SPDX-License-Identifier: GPL-2.0

//! Waits for changes of which nothing is notified.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Waits until `is_so` returns `true`.
///
/// # Errors
///
/// - `ETIMEDOUT` after 30 s.
pub(crate) fn eventually(is_so: impl Fn() -> bool) -> Result {
    let start = Instant::<Monotonic>::now();
    while !is_so() {
        if start.elapsed() > Delta::from_secs(30) {
            return Err(ETIMEDOUT);
        }
        fsleep(Delta::from_millis(1));
    }
    Ok(())
}
