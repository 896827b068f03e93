// SPDX-License-Identifier: GPL-2.0

//! Charges of messages to the accounts of users, with the limits on them.

use super::{
    cong_notify::CongNotify,
    forward::{
        ForwardSocket,
        Node, //
    },
    Account,
    SndbufCharge,
    Socket,
    UpperNode, //
};
use crate::{
    kapi::{
        net::Sock,
        sync::ReadOnce, //
    },
    proto::rcvbuf::{
        self,
        Unread,
        Usage, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Number of users whose shares fill a pool.
///
/// A pool may take a quarter of a node's memory by default, so a share is a 64th. At the receiver
/// short messages may take twice that, a 32nd. A port drops messages only above a 32nd of the
/// node's memory. So between nodes of equal size one user cannot cause drops of other users'
/// messages.
const USERS: usize = 16;

/// Returns the limit on the memory of a user's messages to other nodes, in bytes.
///
/// # Context
///
/// Any context.
fn share_limit(node: &Node) -> usize {
    node.pool_limit() / USERS
}

impl Account {
    /// Charges `bytes` to the user's share for sending. Returns `false` if there is no room.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn charge(&self, node: &Node, bytes: usize) -> bool {
        self.sent.charge(bytes, share_limit(node))
    }

    /// Returns `true` if there is room to send. Otherwise the waiters are woken when there is.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn has_room(&self, node: &Node) -> bool {
        self.sent.has_room(share_limit(node))
    }

    /// Releases `bytes`, and schedules the wake-up of waiters if there is room again.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn credit(&self, node: &Node, bytes: usize) {
        if self.sent.credit(bytes, || share_limit(node)) {
            self.waiters.wake(&node.queue);
        }
    }

    /// Charges an unread message.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn charge_unread(&self, node: &Node, more: Unread) {
        node.shared.accounts.unread.add(more);
        self.unread.add(more);
        self.update_tight(node);
    }

    /// Uncharges messages that were read or dropped.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn uncharge_unread(&self, node: &Node, less: Unread) {
        self.unread.subtract(less);
        node.shared.accounts.unread.subtract(less);
        self.update_tight(node);
    }

    /// Returns the unread messages of the user, and those of all users.
    #[inline]
    fn unread_sums(&self, node: &Node) -> (Unread, Unread) {
        let all = &node.shared.accounts.unread;
        (self.unread.read_once(), all.read_once())
    }

    /// Returns `true` if the ports of the user count as congested earlier.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.read_once()
    }

    /// Returns `true` if sockets without messages keep no charge.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn is_charged_closely(&self) -> bool {
        self.close.read_once()
    }

    /// Returns the user's share of the receive memory, which decides about messages in buffers.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn usage(&self, node: &Node) -> Usage {
        let (own, all) = self.unread_sums(node);
        rcvbuf::usage(own, all, node.pool_limit() as u64)
    }

    /// Returns `true` if the user gets a short message.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn takes_short(&self, node: &Node) -> bool {
        let (own, all) = self.unread_sums(node);
        rcvbuf::takes_short(own, all, node.pool_limit() as u64)
    }

    fn update_tight(&self, node: &Node) {
        let (own, all) = self.unread_sums(node);
        let limit = node.pool_limit() as u64;
        let tight = rcvbuf::usage(own, all, limit) != Usage::Small;
        if tight != self.is_tight() {
            self.tight.store(tight, Relaxed);
        }
        let close = rcvbuf::closely(own, all, limit);
        if close != self.is_charged_closely() {
            self.close.store(close, Relaxed);
        }
    }
}

impl Socket {
    /// Returns the account that is charged for messages to other nodes. If there is none yet, that
    /// is the account of the calling program's user.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn account(&self) -> Result<Option<&Arc<Account>>> {
        if self.creator.is_none() && self.sender.as_ref().is_none() {
            // Another caller may have set it meanwhile; then that account stays.
            let sender = self.node.shared.accounts.of_caller()?;
            if sender.is_some() {
                self.is_charged.store(true, Relaxed);
            }
            self.sender.populate(sender);
        }
        Ok(self.known_account())
    }

    /// Returns the account, if there is one yet.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    fn known_account(&self) -> Option<&Arc<Account>> {
        match &self.creator {
            None => self.sender.as_ref()?.as_deref(),
            creator => creator.as_deref(),
        }
    }
}

impl Sock<Socket> {
    /// Returns `true` if the share of the user has room. Otherwise the socket is woken when it has.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    #[inline]
    pub(crate) fn may_use_share(&self) -> bool {
        !self.is_charged.read_once() || self.has_share()
    }

    #[inline(never)]
    fn has_share(&self) -> bool {
        let Some(account) = self.known_account() else {
            return true;
        };
        // If there is no memory for the waiter, the next call reports the room.
        account.has_room(&self.node)
            || self.await_room(&account.waiters).is_err()
            || account.has_room(&self.node)
    }
}

/// The limit that was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeError {
    Buffer,
    Share,
}

impl SndbufCharge {
    /// Charges a message of `bytes` bytes of memory, unless `limit` bytes or more are in use. For a
    /// message to another node, `account` is that of the socket's user, if there is one.
    ///
    /// The last message may exceed the limit, as on C RDS: only the room before it counts.
    ///
    /// # Errors
    ///
    /// - [`ChargeError::Buffer`] if the send buffer is full.
    /// - [`ChargeError::Share`] if the user's share is full.
    #[inline(always)]
    pub(crate) fn take(
        sk: &Sock<Socket>,
        account: Option<&Account>,
        bytes: usize,
        limit: usize,
    ) -> Result<Self, ChargeError> {
        // No message takes this much.
        let size = u32::try_from(bytes).map_err(|_| ChargeError::Buffer)?;
        if !sk.charge_send(bytes, limit) {
            return Err(ChargeError::Buffer);
        }
        if account.is_some_and(|account| !account.charge(&sk.node, bytes)) {
            sk.credit_send(bytes);
            return Err(ChargeError::Share);
        }
        Ok(Self {
            sk: sk.hold(),
            bytes: size,
            shared: account.is_some(),
        })
    }
}

/// Calls of the files before the socket.
impl ForwardSocket for Socket {
    #[inline]
    fn cong_notify(&self) -> &CongNotify {
        &self.cong_notify
    }

    #[inline]
    fn credit_send(sk: &Sock<Self>, bytes: usize) {
        sk.credit_send(bytes);
    }

    #[inline(never)]
    fn credit_share(&self, bytes: usize) {
        if let Some(account) = self.known_account() {
            account.credit(&self.node, bytes);
        }
    }
}
