// SPDX-License-Identifier: GPL-2.0

//! Flags by which others tell a connection's worker what has happened.
//!
//! `tests/loom` compiles the file, too.

use kernel::sync::atomic::{Atomic, Full, Relaxed, Release};

/// An event that is set from any context, also a hard interrupt, and that the worker takes. Whoever
/// sets it then wakes the worker.
pub(super) struct Flag(Atomic<bool>);

impl Flag {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Sets it. Whoever takes it sees what was done before. Any context.
    pub(super) fn raise(&self) {
        self.0.store(true, Release);
    }

    /// Whether it was set since the last time. Only for the worker.
    pub(super) fn take(&self) -> bool {
        self.0.load(Relaxed) && self.0.xchg(false, Full)
    }
}
