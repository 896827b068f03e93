// SPDX-License-Identifier: GPL-2.0

//! Set of events that any context reports to a work item.
//!
//! The reporter sets a bit, and then queues the work item. The work item takes the bits one by one,
//! in an order that it chooses. Several work items may share a mask if each takes bits of its own.
//!
//! `tests/loom` also compiles this file.

use crate::kapi::sync::ReadOnce;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// A set of events, each with a bit of its own.
pub(super) struct EventMask(Atomic<u32>);

impl EventMask {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Sets events. The work item that takes one sees everything done before, also by those that
    /// have set it earlier.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn set(&self, bits: u32) {
        let mut old = self.0.load(Relaxed);
        // Also stored if they are set already: the work item may take them without this reporter's
        // changes otherwise.
        while let Err(now) = self.0.cmpxchg(old, old | bits, Release) {
            old = now;
        }
    }

    /// Returns `true` if one of these events is set.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn has(&self, bits: u32) -> bool {
        self.0.read_once() & bits != 0
    }

    /// Clears an event. Returns `true` if it was set since the last call. Only for one work item.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn take(&self, bit: u32) -> bool {
        let mut old = self.0.load(Relaxed);
        while old & bit != 0 {
            match self.0.cmpxchg(old, old & !bit, Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }
}
