// SPDX-License-Identifier: GPL-2.0

//! Flags that report events to the work items of a connection.
//!
//! `tests/loom` also compiles this file.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// An event flag. Any context, also hard interrupt, sets it and then queues the work item that
/// takes it.
pub(super) struct Flag(Atomic<bool>);

impl Flag {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Sets the flag. The work item that takes it sees everything done before.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn raise(&self) {
        self.0.store(true, Release);
    }

    /// Clears the flag. Returns `true` if it was set since the last call. Only for one work item.
    pub(super) fn take(&self) -> bool {
        self.0.load(Relaxed) && self.0.xchg(false, Full)
    }
}
