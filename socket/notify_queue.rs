// SPDX-License-Identifier: GPL-2.0

//! Notifications of RDMA operations that a program has yet to read.

use crate::{
    kapi::sync::{
        new_spinlock_bh,
        Fifo,
        Item,
        ReadOnce,
        SpinLockBh, //
    },
    uapi::rdma::Status, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Result of an operation.
pub(crate) struct Notification {
    /// Token that the program has assigned to the operation.
    pub(crate) token: u64,
    pub(crate) status: Status,
    /// The program has requested the notification. Otherwise it is only for calls that have room
    /// for it.
    pub(crate) requested: bool,
}

/// Maximum number of unread notifications of a socket.
pub(crate) const MAX_UNREAD: u32 = 16 << 10;

/// Unread notifications, in the order in which the program is to read them.
#[pin_data]
pub(crate) struct NotifyQueue {
    #[pin]
    list: SpinLockBh<Fifo<Notification>>,
    /// Set while there is a notification. Written with the list locked, read without.
    any: Atomic<bool>,
    /// Number of requested notifications, with the same locking.
    requested: Atomic<u32>,
}

impl NotifyQueue {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock_bh!(Fifo::new(), "Socket::notify_queue"),
            any: Atomic::new(false),
            requested: Atomic::new(0),
        })
    }

    /// Returns `true` if there is a notification.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.read_once()
    }

    /// Returns `true` if there is a notification for a call. A call without room only counts
    /// requested ones.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn any_for(&self, has_room: bool) -> bool {
        self.any() && (has_room || self.requested.read_once() != 0)
    }

    /// Returns `true` if the program has too many unread notifications to start operations.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_full(&self) -> bool {
        self.requested.read_once() >= MAX_UNREAD
    }

    /// Adds a notification and leaves waking readers to the caller. Drops it if it was not
    /// requested and the queue is full.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn add(&self, notification: Item<Notification>) {
        let mut list = self.list.lock();
        if !notification.requested && list.len() >= MAX_UNREAD as usize {
            drop(list);
            drop(notification);
            return;
        }
        self.note(&notification, 1);
        list.push_back(notification);
        self.any.store(true, Relaxed);
    }

    /// Takes the oldest notification.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn take(&self) -> Option<Item<Notification>> {
        let mut list = self.list.lock();
        let notification = list.pop_front()?;
        self.note(&notification, -1);
        self.any.store(!list.is_empty(), Relaxed);
        Some(notification)
    }

    /// Drops the oldest requested notification, and those before it. Returns `false` if there is
    /// none.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn miss(&self) -> bool {
        while let Some(notification) = self.take() {
            if notification.requested {
                return true;
            }
        }
        false
    }

    /// Puts the notification back that was taken last and not reported.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn put_back(&self, notification: Item<Notification>) {
        let mut list = self.list.lock();
        self.note(&notification, 1);
        list.push_front(notification);
        self.any.store(true, Relaxed);
    }

    /// Updates the count for a notification that is added (1) or removed (-1). Called with the list
    /// locked.
    fn note(&self, notification: &Notification, change: i32) {
        if notification.requested {
            let requested = self.requested.read_once().wrapping_add_signed(change);
            self.requested.store(requested, Relaxed);
        }
    }
}
