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
pub(crate) struct PongSlot {
    /// `None` beyond the limit.
    counted: Option<Arc<Atomic<usize>>>,
}

impl PongBudget {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL)?))
    }

    /// Takes a slot, or returns `None` if there is none. Namespaces of users leave half of the
    /// slots to those of root. `in_any_case` ignores the limit, and takes no slot of others.
    pub(crate) fn take(&self, is_of_user: bool, in_any_case: bool) -> Option<PongSlot> {
        let most = match is_of_user {
            true => MOST / 2,
            false => MOST,
        };
        let before = self.0.fetch_add(1, Relaxed);
        let pong = PongSlot {
            counted: Some(self.0.clone()),
        };
        match before < most {
            true => Some(pong),
            false => in_any_case.then_some(PongSlot { counted: None }),
        }
    }
}

impl Drop for PongSlot {
    fn drop(&mut self) {
        if let Some(counted) = &self.counted {
            counted.fetch_sub(1, Relaxed);
        }
    }
}
