// SPDX-License-Identifier: GPL-2.0

//! A number of things that several owners share, with a limit.

use super::ReadOnce;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A number of things. Clones are the same number.
#[derive(Clone)]
pub(crate) struct SharedCount(Arc<Atomic<usize>>);

/// One thing in a count. Dropping it subtracts the thing.
pub(crate) struct Counted(SharedCount);

impl SharedCount {
    /// Creates a count of 0.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL)?))
    }

    /// Counts one more, or returns `None` if there are `most`.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn add(&self, most: usize) -> Option<Counted> {
        let before = self.0.fetch_add(1, Relaxed);
        let counted = Counted(self.clone());
        (before < most).then_some(counted)
    }

    /// Returns the number.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn get(&self) -> usize {
        self.0.read_once()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Self(SharedCount(count)) = self;
        count.fetch_sub(1, Relaxed);
    }
}
