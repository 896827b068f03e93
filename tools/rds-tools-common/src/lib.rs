// SPDX-License-Identifier: GPL-2.0
//! Functions that the RDS tools share, and no other program needs.

mod latency;
mod priority;
mod progress;
mod route;

use std::fmt;
use std::process::ExitCode;

pub use latency::Latencies;
pub use priority::run_before_others;
pub use progress::Progress;
pub use route::source_address_for;

/// Prints an error in one write, so that the lines of two programs do not mix.
pub fn complain(program: &str, what: impl fmt::Display) {
    let message = format!("{program}: {what}\n");
    eprint!("{message}");
}

/// Returns the exit status of a program with this result; `Ok(false)` is a failure, too. Prints an
/// error with its causes.
pub fn exit_code(program: &str, result: Result<bool, impl fmt::Display>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(program, format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
