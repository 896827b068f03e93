// SPDX-License-Identifier: GPL-2.0

//! What unread messages from other nodes keep of memory, charged to the users whose sockets they
//! wait at.
//!
//! The pools of buffers are for all. Who does not read shall use them up for nobody else, with
//! however many sockets. Programs that may exceed limits are not charged.

use crate::kapi::{
    sync::{new_spinlock_bh, Peek, SpinLockBh},
    task::{self, UserId},
};
use crate::proto::rcvbuf::{usage, Unread, Usage};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// A user, with so many sockets.
struct User {
    account: Arc<Account>,
    sockets: usize,
}

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
struct Account {
    unread: Sum,
    /// It is so much that the user's ports count as congested earlier.
    tight: Atomic<bool>,
}

/// All users that have sockets which are charged.
#[pin_data]
pub(crate) struct Readers {
    /// What they are charged with together, in bytes.
    all: Sum,
    #[pin]
    users: SpinLockBh<RBTree<UserId, User>>,
}

impl Readers {
    /// Nobody yet. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                all: Sum::new(),
                users <- new_spinlock_bh!(RBTree::new(), "Readers::users"),
            }),
            GFP_KERNEL,
        )
    }

    /// The account of a user who has sockets, for another one.
    fn find(&self, user: UserId) -> Option<Arc<Account>> {
        let mut users = self.users.lock();
        let known = users.get_mut(&user)?;
        known.sockets = known.sockets.saturating_add(1);
        Some(known.account.clone())
    }

    /// The same, of one who has none yet, or had none a moment ago.
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

/// One of the sockets of a user.
pub(crate) struct Reader(Option<Charged>);

/// Where its unread messages are charged.
struct Charged {
    readers: Arc<Readers>,
    user: UserId,
    account: Arc<Account>,
}

impl Reader {
    /// One more of the calling program's user, who is charged unless it may exceed limits. Fails
    /// with ENOMEM. Process context; may sleep.
    pub(crate) fn of_caller(readers: &Arc<Readers>) -> Result<Self> {
        if task::is_resource_admin() {
            return Ok(Self(None));
        }
        let user = UserId::current();
        let charged = |account: Arc<Account>| {
            Self(Some(Charged {
                readers: readers.clone(),
                user,
                account,
            }))
        };
        if let Some(account) = readers.find(user) {
            return Ok(charged(account));
        }
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let new = Account {
            unread: Sum::new(),
            tight: Atomic::new(false),
        };
        let new = Arc::new(new, GFP_KERNEL)?;
        Ok(charged(readers.add(user, new, place)))
    }

    /// A message waits to be read that takes so much; a pool may take `limit` bytes. Any context.
    pub(super) fn charge(&self, more: Unread, limit: usize) {
        if let Self(Some(charged)) = self {
            charged.readers.all.add(more);
            charged.account.unread.add(more);
            charged.judge(limit);
        }
    }

    /// Messages that took so much do not wait any more. Any context.
    pub(super) fn uncharge(&self, less: Unread, limit: usize) {
        if let Self(Some(charged)) = self {
            charged.account.unread.subtract(less);
            charged.readers.all.subtract(less);
            charged.judge(limit);
        }
    }

    /// Whether the ports of the user count as congested earlier. Any context.
    #[inline]
    pub(super) fn is_tight(&self) -> bool {
        matches!(self, Self(Some(charged)) if charged.account.tight.peek())
    }

    /// What becomes of a message that is to be charged. Any context.
    pub(super) fn usage(&self, limit: usize) -> Usage {
        match self {
            Self(Some(charged)) => charged.usage(limit),
            Self(None) => Usage::Small,
        }
    }
}

impl Charged {
    fn judge(&self, limit: usize) {
        let tight = self.usage(limit) != Usage::Small;
        if tight != self.account.tight.peek() {
            self.account.tight.store(tight, Relaxed);
        }
    }

    fn usage(&self, limit: usize) -> Usage {
        let (own, all) = (self.account.unread.peek(), self.readers.all.peek());
        usage(own, all, limit as u64)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let mut users = self.readers.users.lock();
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
