// SPDX-License-Identifier: GPL-2.0

//! Limit on unsent answers to pings. They are not charged to any socket.

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

/// Maximum number of waiting pongs on all connections together, about 7 MiB.
const MOST: usize = 16384;

/// Pongs that wait to be sent or acknowledged, of one node or of several.
#[derive(Clone)]
pub(crate) struct PongBudget(Arc<Atomic<usize>>);

/// Slot of one pong. Dropping it frees the slot.
pub(crate) struct PongSlot(Arc<Atomic<usize>>);

impl PongBudget {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL)?))
    }

    /// Takes a slot, or returns `None` if there is none. `in_any_case` ignores the limit.
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
