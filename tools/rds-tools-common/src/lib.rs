// SPDX-License-Identifier: GPL-2.0
//! What the RDS tools share, and no other program needs.

mod priority;
mod route;

use std::fmt;

pub use priority::run_before_others;
pub use route::source_address_for;

/// Tells people what went wrong, in one write, so that the lines of two programs do not mix.
pub fn complain(program: &str, what: impl fmt::Display) {
    let message = format!("{program}: {what}\n");
    eprint!("{message}");
}
