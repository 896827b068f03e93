// SPDX-License-Identifier: GPL-2.0

//! Charge for the bounce buffers of an operation.

use super::{
    forward::Node,
    Account, //
};
use crate::{
    kapi::sync::ReadOnce,
    proto::bounce::may_bounce, //
};
use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};

/// Charge for the bounce buffers of an operation. It is released when dropped, in any context.
pub(crate) struct BounceCharge {
    node: Arc<Node>,
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl BounceCharge {
    /// Charges `bytes` of bounce buffers for an operation. The user of `account` is restricted
    /// further. Returns `None` if there is no room.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn new(
        node: &Arc<Node>,
        account: Option<&Arc<Account>>,
        bytes: usize,
        limit: usize,
    ) -> Option<Self> {
        let mut all = node.shared.bounce_room.held.read_once();
        loop {
            let own = account.map_or(0, |account| account.bounced.read_once());
            if !may_bounce(own, all, limit) {
                return None;
            }
            let more = all.saturating_add(bytes);
            match node.shared.bounce_room.held.cmpxchg(all, more, Full) {
                Ok(_) => break,
                Err(now) => all = now,
            }
        }
        // Calls of one user at the same time may each exceed the user's part by one operation.
        if let Some(account) = account {
            account.bounced.fetch_add(bytes, Relaxed);
        }
        Some(Self {
            node: node.clone(),
            account: account.cloned(),
            bytes,
        })
    }
}

impl Drop for BounceCharge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.bounced.fetch_sub(self.bytes, Relaxed);
        }
        let room = &self.node.shared.bounce_room;
        room.held.fetch_sub(self.bytes, Full);
        if room.is_awaited.read_once() && room.is_awaited.xchg(false, Full) {
            room.waiters.wake(&self.node.queue);
        }
    }
}
