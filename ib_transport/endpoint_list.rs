// SPDX-License-Identifier: GPL-2.0

//! List of the endpoints that use a device. Removal of the device waits until it is empty and no
//! [`Hold`] is left.

use super::endpoint_shared::EndpointShared;
use crate::{
    cm::laddr::{
        AddrUser,
        LocalAddrs, //
    },
    kapi::{
        rdma::{
            DeviceId,
            SendProgress, //
        },
        sync::{
            new_spinlock_bh,
            Sections,
            SpinLockBh,
            SpinLockBhGuard, //
        },
        walk_in_batches, //
    },
    proto::completion_watchdog::WatchdogTimeout, //
};
use core::convert::Infallible;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Completion, //
    }, //
};

/// Number of entries visited each time the list is locked.
const BATCH: usize = 32;

/// Time of the next check of a connection by the device's worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextCheck {
    /// Only when the connection requests it.
    Done,
    AtNextPeriod,
    /// After a short delay: nothing is posted, or the peer may have to be sent a header.
    Soon,
}

/// The queue pair of an endpoint, as its device sees it.
///
/// # Context
///
/// Methods without this section may be called in any context except hard interrupt.
pub(crate) trait EndpointQp: Send + Sync {
    /// Returns the progress of the device with the send queue.
    fn send_progress(&self) -> SendProgress;

    /// Makes the device send a header and report its completion. If there is no room, the header
    /// waits, or the watchdog gives up the connection.
    fn send_something(&self);

    /// Checks for completions that are missing for longer than `timeout`.
    fn check_progress(&self, timeout: WatchdogTimeout);

    /// Gives up the connection because posted sends do not complete.
    fn give_up_sending(&self, what: &str);

    /// Returns `true` if the receive ring needs a check before the period ends.
    fn needs_service(&self) -> bool;

    /// Refills the receive ring if softirqs could not, and adapts its depth at the end of a period.
    /// Gives the connection up if it lacks memory for too long.
    ///
    /// # Context
    ///
    /// May sleep.
    fn service_ring(&self, period_ends: bool) -> NextCheck;
}

/// An endpoint that uses a device.
pub(super) struct EndpointEntry {
    pub(super) shared: Arc<EndpointShared>,
    /// The endpoint's queue pair, once it is created.
    pub(super) qp: Option<Arc<dyn EndpointQp>>,
}

/// The endpoints of a device, by number. Numbers are not reused.
struct EndpointTree {
    tree: RBTree<u64, EndpointEntry>,
    /// Number of endpoints in `tree`.
    len: usize,
    /// Number of [`Hold`]s.
    holds: usize,
    next: u64,
    /// The device is being removed; nothing can be added.
    closed: bool,
}

impl EndpointTree {
    /// Returns `true` if the device is unused, and stays so.
    fn is_over(&self) -> bool {
        self.closed && self.tree.is_empty() && self.holds == 0
    }
}

/// The endpoints that use a device. The list may outlive the device, and is empty then.
#[pin_data]
pub(crate) struct EndpointList {
    device: DeviceId,
    /// Sections in which a CM id may be bound to another device.
    pub(super) sections: Arc<Sections>,
    #[pin]
    endpoints: SpinLockBh<EndpointTree>,
    /// Completed when the device is being removed and has no users left.
    #[pin]
    unused: Completion,
}

/// A use of a device without an endpoint. The device is not removed before it is dropped.
///
/// # Context
///
/// Dropped in any context except hard interrupt.
pub(crate) struct Hold(Arc<EndpointList>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut endpoints = self.0.endpoints.lock();
        endpoints.holds = endpoints.holds.saturating_sub(1);
        self.0.unlock(endpoints, None);
    }
}

impl EndpointList {
    /// Creates an empty list.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(device: DeviceId, sections: Arc<Sections>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                sections,
                endpoints <- new_spinlock_bh!(
                    EndpointTree { tree: RBTree::new(), len: 0, holds: 0, next: 0, closed: false },
                    "Device::endpoints"
                ),
                unused <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds an endpoint, and returns its number.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is being removed.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn enter(&self, shared: &Arc<EndpointShared>) -> Result<u64> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let user = EndpointEntry {
            shared: shared.clone(),
            qp: None,
        };
        let mut endpoints = self.endpoints.lock();
        if endpoints.closed {
            // The new entry is dropped after the lock.
            drop(endpoints);
            return Err(ENODEV);
        }
        let number = endpoints.next;
        endpoints.next = number.wrapping_add(1);
        endpoints.len = endpoints.len.saturating_add(1);
        let replaced = endpoints.tree.insert(place.into_node(number, user));
        drop(endpoints);
        drop(replaced);
        Ok(number)
    }

    /// Sets the queue pair of an endpoint.
    pub(super) fn set_qp(&self, number: u64, qp: Arc<dyn EndpointQp>) {
        if let Some(user) = self.endpoints.lock().tree.get_mut(&number) {
            user.qp = Some(qp);
        }
    }

    /// Returns the queue pair of an endpoint, if the endpoint exists and has one.
    pub(super) fn qp(&self, number: u64) -> Option<Arc<dyn EndpointQp>> {
        self.endpoints.lock().tree.get(&number)?.qp.clone()
    }

    /// Makes the removal of the device wait until the result is dropped. Returns `None` if the
    /// device is being removed already.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Hold> {
        let mut endpoints = self.endpoints.lock();
        if endpoints.closed {
            return None;
        }
        endpoints.holds = endpoints.holds.saturating_add(1);
        drop(endpoints);
        Some(Hold(self.clone()))
    }

    /// Removes an endpoint.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn leave(&self, number: u64) {
        let mut endpoints = self.endpoints.lock();
        let user = endpoints.tree.remove_node(&number);
        endpoints.len = endpoints.len.saturating_sub(usize::from(user.is_some()));
        self.unlock(endpoints, user);
    }

    /// Unlocks the list and drops an entry that was removed from it. After that removal of the
    /// device goes on, if it waits and this was the last use.
    fn unlock(
        &self,
        endpoints: SpinLockBhGuard<'_, EndpointTree>,
        removed: Option<RBTreeNode<u64, EndpointEntry>>,
    ) {
        let over = endpoints.is_over();
        drop(endpoints);
        drop(removed);
        if over {
            self.unused.complete_all();
        }
    }

    /// Notifies all endpoints that the device is being removed. Waits until there are no endpoints
    /// and no [`Hold`]s.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn close(&self) {
        let mut endpoints = self.endpoints.lock();
        endpoints.closed = true;
        self.unlock(endpoints, None);
        // A few at a time, because others wait for the lock. No endpoint is added any more. With
        // the lock held, because the worker of an endpoint on the list has not ended.
        self.for_each(
            |_, user| {
                user.shared.lose_device();
                None::<()>
            },
            |()| {},
        );
        self.unused.wait_for_completion();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of endpoints.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn len(&self) -> usize {
        self.endpoints.lock().len
    }

    /// Calls `pick` with the number and the entry of each endpoint, and `each` with its results.
    /// The list is locked only for `pick`. An endpoint that is added or removed meanwhile may be
    /// left out.
    pub(super) fn for_each<T>(
        &self,
        pick: impl Fn(u64, &EndpointEntry) -> Option<T>,
        mut each: impl FnMut(T),
    ) {
        let (mut from, end) = (0, self.endpoints.lock().next);
        let Ok(()) = walk_in_batches::<T, Infallible, BATCH>(
            |batch| {
                let endpoints = self.endpoints.lock();
                for _ in 0..BATCH {
                    let Some(cursor) = endpoints.tree.cursor_lower_bound(&from) else {
                        return Ok(false);
                    };
                    let (number, user) = cursor.current();
                    if let Some(picked) = pick(*number, user) {
                        batch.push(picked);
                    }
                    from = number.saturating_add(1);
                }
                Ok(from < end)
            },
            |picked| {
                each(picked);
                Ok(())
            },
        );
    }
}

impl AddrUser for EndpointList {
    fn recheck(&self, addrs: &LocalAddrs) {
        self.for_each(
            |_, user| {
                let is_of = user.shared.connection.key.net == addrs.net();
                is_of.then(|| user.shared.clone())
            },
            |shared| shared.check_address(addrs, self.device),
        );
    }
}
