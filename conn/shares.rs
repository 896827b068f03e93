// SPDX-License-Identifier: GPL-2.0

//! What each user may have under way to other nodes.
//!
//! Peers that take nothing keep what is sent to them, for as long as they like. The pools that it
//! is in are there for all, so no user gets more of them than a share.

use super::Node;
use crate::cong::Waiters;
use crate::kapi::task::{self, without_io, UserId};
use crate::msg::SharedRoom;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
    workqueue::{Work, WorkItem},
};

/// As many users fill a pool. A port takes a 32nd part of a node's memory at least before messages
/// for it are dropped, and the share of a user on a like node is a 64th: even if his short messages
/// take twice that there, he does not have those of others dropped.
const USERS: usize = 16;

/// Shares that are kept in any case, though nobody uses them.
const KEPT: usize = 64;

/// The share of a user.
#[pin_data]
pub(crate) struct Share {
    room: SharedRoom,
    /// The sockets that wait for room.
    #[pin]
    pub(crate) waiters: Waiters,
    #[pin]
    waking: Work<Self>,
    /// Sockets of the user that have sent something.
    sockets: Atomic<usize>,
}

impl Share {
    fn new() -> Result<Arc<Self>> {
        let this = pin_init!(Self {
            room: SharedRoom::new(),
            waiters <- Waiters::new(),
            waking <- kernel::new_work!("Share::waking"),
            sockets: Atomic::new(0),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Takes so many bytes if there is room. Any context.
    #[inline]
    pub(crate) fn charge(&self, node: &Node, bytes: usize) -> bool {
        self.room.charge(bytes, node.share_limit())
    }

    /// Whether there is room; if not, the waiters are told when there is. Any context.
    pub(crate) fn has_room(&self, node: &Node) -> bool {
        self.room.has_room(node.share_limit())
    }

    /// Gives so many bytes back. Any context.
    #[inline]
    pub(crate) fn credit(self: &Arc<Self>, node: &Node, bytes: usize) {
        if self.room.credit(bytes, || node.share_limit()) {
            node.queue.enqueue::<_, 0>(self.clone());
        }
    }
}

/// A socket's hold of the share of its user.
pub(crate) struct Shareholder(Arc<Share>);

impl core::ops::Deref for Shareholder {
    type Target = Arc<Share>;

    #[inline]
    fn deref(&self) -> &Arc<Share> {
        &self.0
    }
}

impl Drop for Shareholder {
    fn drop(&mut self) {
        self.0.sockets.fetch_sub(1, Relaxed);
    }
}

/// The users that have one.
struct Table {
    by_user: RBTree<UserId, Arc<Share>>,
    count: usize,
    /// As many may be there until those that nobody uses go.
    most: usize,
}

/// The shares of all users.
#[pin_data]
pub(crate) struct Shares {
    #[pin]
    table: Mutex<Table>,
}

impl Shares {
    pub(super) fn new() -> impl PinInit<Self> {
        let table = Table {
            by_user: RBTree::new(),
            count: 0,
            most: KEPT,
        };
        pin_init!(Self {
            table <- new_mutex!(table, "Shares::table"),
        })
    }

    /// The share of the calling program's user; `None` if he may have it all. Fails with ENOMEM.
    /// Process context; sleeps.
    pub(crate) fn of_caller(&self) -> Result<Option<Shareholder>> {
        if task::is_resource_admin() {
            return Ok(None);
        }
        let user = UserId::current();
        let mut table = self.table.lock();
        let share = match table.by_user.get(&user) {
            Some(share) => share.clone(),
            None => table.add(user)?,
        };
        share.sockets.fetch_add(1, Relaxed);
        Ok(Some(Shareholder(share)))
    }
}

impl Table {
    fn add(&mut self, user: UserId) -> Result<Arc<Share>> {
        if self.count >= self.most {
            self.drop_unused();
            self.most = self.count.saturating_mul(2).max(KEPT);
        }
        let share = Share::new()?;
        let node = RBTreeNode::new(user, share.clone(), GFP_KERNEL)?;
        self.by_user.insert(node);
        self.count = self.count.saturating_add(1);
        Ok(share)
    }

    fn drop_unused(&mut self) {
        let mut next = self.by_user.cursor_front_mut();
        while let Some(cursor) = next {
            if cursor.current().1.sockets.load(Relaxed) == 0 {
                self.count = self.count.saturating_sub(1);
                next = cursor.remove_current().0;
            } else {
                next = cursor.move_next();
            }
        }
    }
}

kernel::impl_has_work! {
    impl HasWork<Self> for Share { self.waking }
}

/// Wakes those who wait for room: any number, so not where it is given back.
impl WorkItem for Share {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.waiters.wake_writers());
    }
}

impl Node {
    /// What all messages of a user to other nodes may take, in bytes. Any context.
    fn share_limit(&self) -> usize {
        self.pool_limit() / USERS
    }
}
