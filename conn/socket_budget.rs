// SPDX-License-Identifier: GPL-2.0

//! Limit on the sockets of peers that wait for their connections. Nobody is charged for what
//! arrives on them.

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

/// Sockets that wait at the listener of one node, or at those of several. Clones count the same
/// sockets.
#[derive(Clone)]
pub(crate) struct SocketBudget {
    waiting: Arc<Atomic<usize>>,
    most: usize,
}

/// Slot of a socket that waits. Dropping it frees the slot.
pub(crate) struct SocketSlot(Arc<Atomic<usize>>);

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
        let waiting = Arc::new(Atomic::new(0), GFP_KERNEL)?;
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
        let before = self.waiting.fetch_add(1, Relaxed);
        let slot = SocketSlot(self.waiting.clone());
        (before < most).then_some(slot)
    }
}

impl Drop for SocketSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
