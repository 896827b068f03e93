// SPDX-License-Identifier: GPL-2.0

//! The endpoints that use a device.

use super::{carrier::Carrier, endpoint::Events};
use crate::cm::laddr::{LocalAddrs, Tenant};
use crate::kapi::{
    rdma::{DeviceId, Qp},
    sync::{new_spinlock_bh, SpinLockBh},
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::Arc,
};

/// An endpoint that uses a device.
pub(super) struct User {
    pub(super) events: Arc<Events>,
    /// Its queue pair, once it has one.
    pub(super) qp: Option<Arc<Qp<Carrier>>>,
}

/// What is known of the endpoints of a device. They have numbers, which are not used again.
struct UserList {
    tree: RBTree<u64, User>,
    /// How many there are.
    len: usize,
    next: u64,
    /// The device is being removed: no new ones.
    closed: bool,
}

/// The endpoints that use a device. This may outlive the device, and is empty then.
#[pin_data]
pub(super) struct Users {
    device: DeviceId,
    #[pin]
    users: SpinLockBh<UserList>,
}

impl Users {
    /// May sleep.
    pub(super) fn new(device: DeviceId) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                users <- new_spinlock_bh!(
                    UserList { tree: RBTree::new(), len: 0, next: 0, closed: false },
                    "Device::users"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Enters an endpoint, and returns its number. Fails with ENODEV if the device is being removed, with ENOMEM. May
    /// sleep.
    pub(super) fn enter(&self, events: &Arc<Events>) -> Result<u64> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let user = User {
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
    pub(super) fn set_qp(&self, number: u64, qp: &Arc<Qp<Carrier>>) {
        if let Some(user) = self.users.lock().tree.get_mut(&number) {
            user.qp = Some(qp.clone());
        }
    }

    /// The queue pair of an endpoint that there is.
    pub(super) fn qp(&self, number: u64) -> Option<Arc<Qp<Carrier>>> {
        self.users.lock().tree.get(&number)?.qp.clone()
    }

    /// Takes an endpoint off. True if the device is being removed, and it was the last. May sleep.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut users = self.users.lock();
        let user = users.tree.remove_node(&number);
        users.len = users.len.saturating_sub(usize::from(user.is_some()));
        let last = users.closed && users.tree.is_empty();
        drop(users);
        drop(user);
        last
    }

    /// The device is being removed: tells all endpoints. False if there are none.
    pub(super) fn close(&self) -> bool {
        let mut users = self.users.lock();
        users.closed = true;
        for user in users.tree.values() {
            user.events.lose_device();
        }
        !users.tree.is_empty()
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
        pick: impl Fn(u64, &User) -> Option<T>,
        mut each: impl FnMut(T),
    ) {
        let (mut from, end) = (0, self.users.lock().next);
        while from < end {
            let users = self.users.lock();
            let found = users.tree.cursor_lower_bound(&from);
            let found = found.map(|cursor| {
                let (number, user) = cursor.current();
                (*number, pick(*number, user))
            });
            drop(users);
            let Some((number, picked)) = found else {
                return;
            };
            if let Some(picked) = picked {
                each(picked);
            }
            from = number.saturating_add(1);
        }
    }
}

impl Tenant for Users {
    fn recheck(&self, addrs: &LocalAddrs) {
        self.for_each(
            |_, user| Some(user.events.clone()),
            |events| events.check_address(addrs, self.device),
        );
    }
}
