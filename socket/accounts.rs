// SPDX-License-Identifier: GPL-2.0

//! Accounts of users for shared memory: messages that their sockets send to other nodes, unread
//! messages from other nodes, and congestion maps.
//!
//! Peers that accept nothing keep sent messages in memory for as long as they like. So do programs
//! that do not read. All users share the buffer pools. The limits here prevent one user from
//! exhausting the pools for others, with any number of sockets. Programs that may exceed limits
//! have no account.

use super::{
    shared_room::SharedRoom,
    upper::Node,
    RoomWaiters,
    UpperNode, //
};
use crate::{
    cong::MapCount,
    kapi::{
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
        task::{
            self,
            UserId, //
        }, //
    },
    proto::rcvbuf::{
        self,
        Unread,
        Usage, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
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

/// Memory of unread messages, as a sum.
struct Sum {
    in_buffers: Atomic<u64>,
    copied: Atomic<u64>,
}

impl Sum {
    const fn new() -> Self {
        Self {
            in_buffers: Atomic::new(0),
            copied: Atomic::new(0),
        }
    }

    fn add(&self, more: Unread) {
        if more.in_buffers != 0 {
            self.in_buffers.fetch_add(more.in_buffers, Relaxed);
        }
        if more.copied != 0 {
            self.copied.fetch_add(more.copied, Relaxed);
        }
    }

    fn subtract(&self, less: Unread) {
        if less.in_buffers != 0 {
            self.in_buffers.fetch_sub(less.in_buffers, Relaxed);
        }
        if less.copied != 0 {
            self.copied.fetch_sub(less.copied, Relaxed);
        }
    }

    fn read_once(&self) -> Unread {
        Unread {
            in_buffers: self.in_buffers.read_once(),
            copied: self.copied.read_once(),
        }
    }
}

/// Charges of a user.
pub(crate) struct Account {
    /// Unread messages at the user's sockets.
    unread: Sum,
    /// `unread` is so much that the user's ports count as congested earlier.
    tight: Atomic<bool>,
    /// `unread` is so much that sockets without messages keep no charge.
    close: Atomic<bool>,
    /// Messages of the user to other nodes.
    sent: SharedRoom,
    /// Bounce buffers of the user's operations, in bytes.
    pub(super) bounced: Atomic<usize>,
    /// Congestion maps that the user's sockets have needed first, in the initial namespace.
    pub(super) maps: MapCount,
    /// Sockets that wait for room to send.
    pub(crate) waiters: Arc<RoomWaiters>,
}

impl Account {
    fn new() -> Result<Arc<Self>> {
        let this = Self {
            unread: Sum::new(),
            tight: Atomic::new(false),
            close: Atomic::new(false),
            sent: SharedRoom::new(),
            bounced: Atomic::new(0),
            maps: MapCount::new()?,
            waiters: RoomWaiters::new()?,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

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

/// Account of a user, and the number of sockets that hold it.
struct User {
    account: Arc<Account>,
    sockets: usize,
}

/// Accounts of all users that have charged sockets.
#[pin_data]
pub(crate) struct Accounts {
    /// Unread messages of all users.
    unread: Sum,
    #[pin]
    users: SpinLockBh<RBTree<UserId, User>>,
}

impl Accounts {
    /// Creates an empty set.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                unread: Sum::new(),
                users <- new_spinlock_bh!(RBTree::new(), "Accounts::users"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the account of the calling program's user, for a socket. `None` if that user may
    /// exceed limits.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn of_caller(self: &Arc<Self>) -> Result<Option<AccountRef>> {
        if task::is_resource_admin() {
            return Ok(None);
        }
        let user = UserId::current();
        let account = match self.find(user) {
            Some(account) => account,
            None => {
                let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
                self.add(user, Account::new()?, place)
            }
        };
        Ok(Some(AccountRef {
            accounts: self.clone(),
            user,
            account,
        }))
    }

    /// Returns the account of a user that has sockets, for one more.
    fn find(&self, user: UserId) -> Option<Arc<Account>> {
        Self::join(&mut self.users.lock(), user)
    }

    fn join(users: &mut RBTree<UserId, User>, user: UserId) -> Option<Arc<Account>> {
        let known = users.get_mut(&user)?;
        known.sockets = known.sockets.saturating_add(1);
        Some(known.account.clone())
    }

    /// Adds `account` for a user that had none, or returns the one that was added meanwhile.
    fn add(
        &self,
        user: UserId,
        account: Arc<Account>,
        place: RBTreeNodeReservation<UserId, User>,
    ) -> Arc<Account> {
        let new = User {
            account: account.clone(),
            sockets: 1,
        };
        let mut users = self.users.lock();
        if let Some(known) = Self::join(&mut users, user) {
            return known;
        }
        let replaced = users.insert(place.into_node(user, new));
        drop(users);
        drop(replaced);
        account
    }
}

/// Hold of a socket on the account of its user.
pub(crate) struct AccountRef {
    accounts: Arc<Accounts>,
    user: UserId,
    account: Arc<Account>,
}

impl core::ops::Deref for AccountRef {
    type Target = Arc<Account>;

    #[inline]
    fn deref(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for AccountRef {
    fn drop(&mut self) {
        let mut users = self.accounts.users.lock();
        let gone = match users.get_mut(&self.user) {
            Some(known) if known.sockets > 1 => {
                known.sockets = known.sockets.saturating_sub(1);
                None
            }
            _ => users.remove_node(&self.user),
        };
        drop(users);
        drop(gone);
    }
}

/// Returns the limit on the memory of a user's messages to other nodes, in bytes.
///
/// # Context
///
/// Any context.
fn share_limit(node: &Node) -> usize {
    node.pool_limit() / USERS
}
