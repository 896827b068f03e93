// SPDX-License-Identifier: GPL-2.0

//! Accounts of users for shared memory: messages that their sockets send to other nodes, unread
//! messages from other nodes, and congestion maps.
//!
//! Peers that accept nothing keep sent messages in memory for as long as they like. So do programs
//! that do not read. All users share the buffer pools. The limits in `shares.rs` prevent one user
//! from exhausting the pools for others, with any number of sockets. Programs that may exceed
//! limits have no account.

use super::{
    shared_room::SharedRoom,
    RoomWaiters, //
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
    proto::rcvbuf::Unread, //
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

/// Memory of unread messages, as a sum.
pub(super) struct Sum {
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

    pub(super) fn add(&self, more: Unread) {
        if more.in_buffers != 0 {
            self.in_buffers.fetch_add(more.in_buffers, Relaxed);
        }
        if more.copied != 0 {
            self.copied.fetch_add(more.copied, Relaxed);
        }
    }

    pub(super) fn subtract(&self, less: Unread) {
        if less.in_buffers != 0 {
            self.in_buffers.fetch_sub(less.in_buffers, Relaxed);
        }
        if less.copied != 0 {
            self.copied.fetch_sub(less.copied, Relaxed);
        }
    }

    pub(super) fn read_once(&self) -> Unread {
        Unread {
            in_buffers: self.in_buffers.read_once(),
            copied: self.copied.read_once(),
        }
    }
}

/// Charges of a user.
pub(crate) struct Account {
    /// Unread messages at the user's sockets.
    pub(super) unread: Sum,
    /// `unread` is so much that the user's ports count as congested earlier.
    pub(super) tight: Atomic<bool>,
    /// `unread` is so much that sockets without messages keep no charge.
    pub(super) close: Atomic<bool>,
    /// Messages of the user to other nodes.
    pub(super) sent: SharedRoom,
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
    pub(super) unread: Sum,
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
