// SPDX-License-Identifier: GPL-2.0

//! Limit on the sockets of peers that wait for their connections. Nobody is charged for what
//! arrives on them.

use crate::kapi::sync::{
    Counted,
    SharedCount, //
};
use kernel::prelude::*;

/// Sockets that wait at the listener of one node, or at those of several. Clones count the same
/// sockets.
#[derive(Clone)]
pub(crate) struct SocketBudget {
    waiting: SharedCount,
    most: usize,
}

/// Slot of a socket that waits. Dropping it frees the slot.
pub(crate) type SocketSlot = Counted;

impl SocketBudget {
    /// Creates a budget for `most` sockets.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(most: usize) -> Result<Self> {
        let waiting = SharedCount::new()?;
        Ok(Self { waiting, most })
    }

    /// Takes a slot, or returns `None` if there is none. Namespaces of users leave half of the
    /// slots to those of root.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn take(&self, is_of_user: bool) -> Option<SocketSlot> {
        let most = match is_of_user {
            true => self.most / 2,
            false => self.most,
        };
        self.waiting.add(most)
    }
}
