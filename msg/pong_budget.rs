// SPDX-License-Identifier: GPL-2.0

//! Limit on unsent answers to pings. They are not charged to any socket.

use crate::kapi::sync::{
    Counted,
    SharedCount, //
};
use kernel::prelude::*;

/// Maximum number of waiting pongs on all connections together, about 7 MiB.
const MOST: usize = 16384;

/// Pongs that wait to be sent or acknowledged, of one node or of several.
#[derive(Clone)]
pub(crate) struct PongBudget(SharedCount);

/// Slot of one pong. Dropping it frees the slot.
pub(crate) struct PongSlot {
    /// `None` beyond the limit.
    _counted: Option<Counted>,
}

impl PongBudget {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(SharedCount::new()?))
    }

    /// Takes a slot, or returns `None` if there is none. Namespaces of users leave half of the
    /// slots to those of root. `in_any_case` ignores the limit, and takes no slot of others.
    pub(crate) fn take(&self, is_of_user: bool, in_any_case: bool) -> Option<PongSlot> {
        let most = match is_of_user {
            true => MOST / 2,
            false => MOST,
        };
        let counted = self.0.add(most);
        (counted.is_some() || in_any_case).then_some(PongSlot { _counted: counted })
    }
}
