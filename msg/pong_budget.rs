// SPDX-License-Identifier: GPL-2.0

//! Answers to pings, of which no socket pays for any.

use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// How many may wait, on all connections together: some 7 MiB.
const MOST: usize = 16384;

/// Those of a node that wait to be sent or acknowledged.
pub(crate) struct PongBudget(Arc<Atomic<usize>>);

/// One of them. Dropping it makes room for another.
pub(crate) struct PongSlot(Arc<Atomic<usize>>);

impl PongBudget {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL)?))
    }

    /// One more, or `None` if there is no room. `in_any_case`: there is.
    pub(crate) fn take(&self, in_any_case: bool) -> Option<PongSlot> {
        let before = self.0.fetch_add(1, Relaxed);
        let pong = PongSlot(self.0.clone());
        (in_any_case || before < MOST).then_some(pong)
    }
}

impl Drop for PongSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
