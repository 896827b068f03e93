// SPDX-License-Identifier: GPL-2.0

//! The endpoints that use a device.

use super::{endpoint::EndpointShared, qp_context::QpContext};
use crate::cm::laddr::{AddrUser, LocalAddrs};
use crate::kapi::{
    rdma::{DeviceId, Qp},
    sync::{new_spinlock_bh, SpinLockBh},
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Completion},
};

/// Users that are looked at from one time to the next that their list is locked.
const BATCH: usize = 32;

/// An endpoint that uses a device.
pub(super) struct EndpointEntry {
    pub(super) events: Arc<EndpointShared>,
    /// Its queue pair, once it has one.
    pub(super) qp: Option<Arc<Qp<QpContext>>>,
}

/// What is known of the endpoints of a device. They have numbers, which are not used again.
struct UserList {
    tree: RBTree<u64, EndpointEntry>,
    /// How many there are.
    len: usize,
    /// How many others there are that have something of the device.
    holds: usize,
    next: u64,
    /// The device is being removed: no new ones.
    closed: bool,
}

impl UserList {
    /// Whether nobody has anything of the device, nor will have.
    fn is_over(&self) -> bool {
        self.closed && self.tree.is_empty() && self.holds == 0
    }
}

/// The endpoints that use a device. This may outlive the device, and is empty then.
#[pin_data]
pub(super) struct EndpointList {
    device: DeviceId,
    #[pin]
    users: SpinLockBh<UserList>,
    /// The device is being removed, and its last user has gone.
    #[pin]
    unused: Completion,
}

/// Somebody has something of a device without an endpoint of it: it is not removed meanwhile. May be dropped in any
/// context but a hard interrupt.
pub(crate) struct Hold(Arc<EndpointList>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut users = self.0.users.lock();
        users.holds = users.holds.saturating_sub(1);
        let over = users.is_over();
        drop(users);
        if over {
            self.0.unused.complete_all();
        }
    }
}

impl EndpointList {
    /// May sleep.
    pub(super) fn new(device: DeviceId) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                users <- new_spinlock_bh!(
                    UserList { tree: RBTree::new(), len: 0, holds: 0, next: 0, closed: false },
                    "Device::users"
                ),
                unused <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Enters an endpoint, and returns its number. Fails with ENODEV if the device is being removed, with ENOMEM. May
    /// sleep.
    pub(super) fn enter(&self, events: &Arc<EndpointShared>) -> Result<u64> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let user = EndpointEntry {
            events: events.clone(),
            qp: None,
        };
        let mut users = self.users.lock();
        if users.closed {
            // What was made for it goes after the lock.
            drop(users);
            return Err(ENODEV);
        }
        let number = users.next;
        users.next = number.wrapping_add(1);
        users.len = users.len.saturating_add(1);
        let replaced = users.tree.insert(place.into_node(number, user));
        drop(users);
        drop(replaced);
        Ok(number)
    }

    /// An endpoint has a queue pair.
    pub(super) fn set_qp(&self, number: u64, qp: &Arc<Qp<QpContext>>) {
        if let Some(user) = self.users.lock().tree.get_mut(&number) {
            user.qp = Some(qp.clone());
        }
    }

    /// The queue pair of an endpoint that there is.
    pub(super) fn qp(&self, number: u64) -> Option<Arc<Qp<QpContext>>> {
        self.users.lock().tree.get(&number)?.qp.clone()
    }

    /// Has the removal of the device wait for the caller. None if it is being removed already. Any context but a hard
    /// interrupt.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Hold> {
        let mut users = self.users.lock();
        if users.closed {
            return None;
        }
        users.holds = users.holds.saturating_add(1);
        drop(users);
        Some(Hold(self.clone()))
    }

    /// Takes an endpoint off. May sleep.
    pub(super) fn leave(&self, number: u64) {
        let mut users = self.users.lock();
        let user = users.tree.remove_node(&number);
        users.len = users.len.saturating_sub(usize::from(user.is_some()));
        let over = users.is_over();
        drop(users);
        drop(user);
        if over {
            self.unused.complete_all();
        }
    }

    /// The device is being removed: tells all endpoints, and waits until they and all others are done with it. Sleeps.
    pub(super) fn close(&self) {
        let mut users = self.users.lock();
        users.closed = true;
        for user in users.tree.values() {
            user.events.lose_device();
        }
        let over = users.is_over();
        drop(users);
        if !over {
            self.unused.wait_for_completion();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are. Any context but a hard interrupt.
    pub(super) fn len(&self) -> usize {
        self.users.lock().len
    }

    /// Calls `each`, without the lock, with what `pick` finds of each user, and its number, that there is all the time.
    pub(super) fn for_each<T>(
        &self,
        pick: impl Fn(u64, &EndpointEntry) -> Option<T>,
        mut each: impl FnMut(T),
    ) {
        let (mut from, end) = (0, self.users.lock().next);
        while from < end {
            let mut picked = [const { None }; BATCH];
            let users = self.users.lock();
            for slot in &mut picked {
                let Some(cursor) = users.tree.cursor_lower_bound(&from) else {
                    from = end;
                    break;
                };
                let (number, user) = cursor.current();
                *slot = pick(*number, user);
                from = number.saturating_add(1);
            }
            drop(users);
            picked.into_iter().flatten().for_each(&mut each);
        }
    }
}

impl AddrUser for EndpointList {
    fn recheck(&self, addrs: &LocalAddrs) {
        self.for_each(
            |_, user| Some(user.events.clone()),
            |events| events.check_address(addrs, self.device),
        );
    }
}
