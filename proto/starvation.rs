// SPDX-License-Identifier: GPL-2.0

//! Decides when a connection that finds no memory is given up.
//!
//! Memory may be short for a moment only, so the connection waits and tries again. Two lacks do not
//! end without a change: partial messages that keep the memory which they wait for, and memory that
//! is free in small pieces only. The next connection sends such messages again, and uses smaller
//! fragments.

use super::{
    wire::FragmentSize,
    SECOND, //
};

/// Time in nanoseconds for which programs that read, or the kernel, may free memory.
const SHORT_WAIT: u64 = SECOND;

/// The same while memory of the module is at its limit, and the next connection could use a pool of
/// smaller fragments. Programs may read at any time.
const LONG_WAIT: u64 = 30 * SECOND;

/// Reason why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The pool is at its limit until readers free buffers or another ring shrinks.
    Limit,
    /// Memory is short, maybe only in pieces of the fragment size.
    NoMemory,
}

/// Time since which a connection has found no memory, if it is waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Starvation {
    since: Option<u64>,
}

impl Starvation {
    pub(crate) const fn new() -> Self {
        Self { since: None }
    }

    pub(crate) fn is_starved(self) -> bool {
        self.since.is_some()
    }

    /// Ends the wait: there is memory, or the connection is given up.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Begins or continues the wait at time `now`, in nanoseconds. Returns `true` if it has lasted
    /// long enough to give the connection up. `partial`: a message of the connection has arrived in
    /// part.
    pub(crate) fn wait(
        &mut self,
        now: u64,
        why: Shortage,
        fragment: FragmentSize,
        partial: bool,
    ) -> bool {
        let since = *self.since.get_or_insert(now);
        let longest = match why {
            _ if partial => SHORT_WAIT,
            _ if fragment == FragmentSize::K4 => return false,
            Shortage::NoMemory => SHORT_WAIT,
            Shortage::Limit => LONG_WAIT,
        };
        now.saturating_sub(since) >= longest
    }
}
