// SPDX-License-Identifier: GPL-2.0

//! The endpoints that use a device.

use super::{carrier::Carrier, endpoint::Events};
use crate::cm::laddr::{LocalAddrs, Tenant};
use crate::kapi::{
    rdma::{DeviceId, Qp},
    sync::{new_spinlock_bh, SpinLockBh, SpinLockBhGuard},
};
use kernel::{prelude::*, sync::Arc};

/// An endpoint that uses a device.
pub(super) struct User {
    pub(super) events: Arc<Events>,
    /// Its queue pair, once it has one.
    pub(super) qp: Option<Arc<Qp<Carrier>>>,
}

/// What is known of the endpoints of a device.
pub(super) struct UserList {
    pub(super) list: KVec<User>,
    /// The device is being removed: no new ones.
    pub(super) closed: bool,
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
                    UserList { list: KVec::new(), closed: false },
                    "Device::users"
                ),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn lock(&self) -> SpinLockBhGuard<'_, UserList> {
        self.users.lock()
    }

    /// Calls `each`, without the lock, with what `pick` finds of each user.
    pub(super) fn for_each<T>(&self, pick: impl Fn(&User) -> Option<T>, mut each: impl FnMut(T)) {
        // Downwards: when one goes meanwhile, another is seen twice, and none is missed.
        let count = self.lock().list.len();
        for index in (0..count).rev() {
            let users = self.lock();
            let picked = users.list.get(index).and_then(&pick);
            drop(users);
            if let Some(picked) = picked {
                each(picked);
            }
        }
    }
}

impl Tenant for Users {
    fn recheck(&self, addrs: &LocalAddrs) {
        self.for_each(
            |user| Some(user.events.clone()),
            |events| events.check_address(addrs, self.device),
        );
    }
}
