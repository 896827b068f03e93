// SPDX-License-Identifier: GPL-2.0

//! What each user takes of the memory that all share: with what his sockets send to other nodes,
//! and with messages from other nodes that wait at them.
//!
//! Peers that take nothing keep what is sent to them, and programs that do not read what they were
//! sent, for as long as they like. The pools of buffers are there for all. So no user uses them up
//! for others, with however many sockets. Programs that may exceed limits have no account.

use super::Node;
use crate::cong::Waiters;
use crate::kapi::{
    sync::{new_spinlock_bh, Peek, SpinLockBh},
    task::{self, without_io, UserId},
};
use crate::msg::SharedRoom;
use crate::proto::rcvbuf::{self, Unread, Usage};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    workqueue::{Work, WorkItem},
};

/// As many users fill a pool. A port takes a 32nd part of a node's memory at least before messages
/// for it are dropped, and the share of a user on a like node is a 64th: even if his short messages
/// take twice that there, he does not have those of others dropped.
const USERS: usize = 16;

/// Unread messages, added up.
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

    fn peek(&self) -> Unread {
        Unread {
            in_buffers: self.in_buffers.peek(),
            copied: self.copied.peek(),
        }
    }
}

/// What a user is charged with.
#[pin_data]
pub(crate) struct Account {
    /// Messages that wait at his sockets.
    unread: Sum,
    /// It is so much that his ports count as congested earlier.
    tight: Atomic<bool>,
    /// His messages to other nodes.
    sent: SharedRoom,
    /// The sockets that wait for room to send.
    #[pin]
    pub(crate) waiters: Waiters,
    #[pin]
    waking: Work<Self>,
}

impl Account {
    fn new() -> Result<Arc<Self>> {
        let this = pin_init!(Self {
            unread: Sum::new(),
            tight: Atomic::new(false),
            sent: SharedRoom::new(),
            waiters <- Waiters::new(),
            waking <- kernel::new_work!("Account::waking"),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Takes so many bytes of the user's share to send with if there is room. Any context.
    #[inline]
    pub(crate) fn charge(&self, node: &Node, bytes: usize) -> bool {
        self.sent.charge(bytes, node.share_limit())
    }

    /// Whether there is room to send; if not, the waiters are told when there is. Any context.
    pub(crate) fn has_room(&self, node: &Node) -> bool {
        self.sent.has_room(node.share_limit())
    }

    /// Gives so many bytes back. Any context.
    #[inline]
    pub(crate) fn credit(self: &Arc<Self>, node: &Node, bytes: usize) {
        if self.sent.credit(bytes, || node.share_limit()) {
            node.queue.enqueue::<_, 0>(self.clone());
        }
    }

    /// A message waits to be read that takes so much. Any context.
    pub(crate) fn charge_unread(&self, node: &Node, more: Unread) {
        node.accounts.unread.add(more);
        self.unread.add(more);
        self.judge(node);
    }

    /// Messages that took so much do not wait any more. Any context.
    pub(crate) fn uncharge_unread(&self, node: &Node, less: Unread) {
        self.unread.subtract(less);
        node.accounts.unread.subtract(less);
        self.judge(node);
    }

    /// Whether the ports of the user count as congested earlier. Any context.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.peek()
    }

    /// What becomes of a message that is in buffers. Any context.
    pub(crate) fn usage(&self, node: &Node) -> Usage {
        let (own, all) = (self.unread.peek(), node.accounts.unread.peek());
        rcvbuf::usage(own, all, node.pool_limit() as u64)
    }

    /// Whether the user gets a short message. Any context.
    pub(crate) fn takes_short(&self, node: &Node) -> bool {
        let (own, all) = (self.unread.peek(), node.accounts.unread.peek());
        rcvbuf::takes_short(own, all, node.pool_limit() as u64)
    }

    fn judge(&self, node: &Node) {
        let tight = self.usage(node) != Usage::Small;
        if tight != self.is_tight() {
            self.tight.store(tight, Relaxed);
        }
    }
}

kernel::impl_has_work! {
    impl HasWork<Self> for Account { self.waking }
}

/// Wakes those who wait for room: any number, so not where it is given back.
impl WorkItem for Account {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.waiters.wake_writers());
    }
}

/// The account of a user, and how many sockets have hold of it.
struct User {
    account: Arc<Account>,
    sockets: usize,
}

/// The accounts of all users that have sockets which are charged.
#[pin_data]
pub(crate) struct Accounts {
    /// What waits to be read, of all of them.
    unread: Sum,
    #[pin]
    users: SpinLockBh<RBTree<UserId, User>>,
}

impl Accounts {
    /// Nobody yet. May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                unread: Sum::new(),
                users <- new_spinlock_bh!(RBTree::new(), "Accounts::users"),
            }),
            GFP_KERNEL,
        )
    }

    /// The account of the calling program's user for a socket; `None` if it may exceed limits.
    /// Fails with ENOMEM. Process context; may sleep.
    pub(crate) fn of_caller(self: &Arc<Self>) -> Result<Option<Holder>> {
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
        Ok(Some(Holder {
            accounts: self.clone(),
            user,
            account,
        }))
    }

    /// The account of a user who has sockets, for another one.
    fn find(&self, user: UserId) -> Option<Arc<Account>> {
        let mut users = self.users.lock();
        let known = users.get_mut(&user)?;
        known.sockets = known.sockets.saturating_add(1);
        Some(known.account.clone())
    }

    /// The same, of one who had none a moment ago.
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
        if let Some(known) = users.get_mut(&user) {
            known.sockets = known.sockets.saturating_add(1);
            return known.account.clone();
        }
        let replaced = users.insert(place.into_node(user, new));
        drop(users);
        drop(replaced);
        account
    }
}

/// A socket's hold of the account of its user.
pub(crate) struct Holder {
    accounts: Arc<Accounts>,
    user: UserId,
    account: Arc<Account>,
}

impl core::ops::Deref for Holder {
    type Target = Arc<Account>;

    #[inline]
    fn deref(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Holder {
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

impl Node {
    /// What all messages of a user to other nodes may take, in bytes. Any context.
    fn share_limit(&self) -> usize {
        self.pool_limit() / USERS
    }
}
