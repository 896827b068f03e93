// SPDX-License-Identifier: GPL-2.0

//! Notifications of RDMA operations that a program has yet to read.

use crate::kapi::sync::{new_spinlock_bh, Fifo, Item, Peek, SpinLockBh};
use crate::uapi::rdma::Status;
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// Result of an operation.
pub(crate) struct Notification {
    /// Token that the program has assigned to the operation.
    pub(crate) token: u64,
    pub(crate) status: Status,
    /// The program has requested the notification. Otherwise it is only for calls that have room
    /// for it.
    pub(crate) asked: bool,
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
    asked: Atomic<u32>,
}

impl NotifyQueue {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock_bh!(Fifo::new(), "Socket::notify_queue"),
            any: Atomic::new(false),
            asked: Atomic::new(0),
        })
    }

    /// Returns `true` if there is a notification.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.peek()
    }

    /// Returns `true` if there is a notification for a call. A call without room only counts
    /// requested ones.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn any_for(&self, has_room: bool) -> bool {
        self.any() && (has_room || self.asked.peek() != 0)
    }

    /// Returns `true` if the program has too many unread notifications to start operations.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_full(&self) -> bool {
        self.asked.peek() >= MAX_UNREAD
    }

    /// Adds a notification and leaves waking readers to the caller. Drops it if it was not
    /// requested and the queue is full.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn add(&self, notice: Item<Notification>) {
        let mut list = self.list.lock();
        if !notice.asked && list.len() >= MAX_UNREAD as usize {
            drop(list);
            drop(notice);
            return;
        }
        self.note(&notice, 1);
        list.push_back(notice);
        self.any.store(true, Relaxed);
    }

    /// Takes the oldest notification.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn take(&self) -> Option<Item<Notification>> {
        let mut list = self.list.lock();
        let notice = list.pop_front()?;
        self.note(&notice, -1);
        self.any.store(!list.is_empty(), Relaxed);
        Some(notice)
    }

    /// Drops the oldest requested notification, and those before it. Returns `false` if there is
    /// none.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn miss(&self) -> bool {
        while let Some(notice) = self.take() {
            if notice.asked {
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
    pub(crate) fn put_back(&self, notice: Item<Notification>) {
        let mut list = self.list.lock();
        self.note(&notice, 1);
        list.push_front(notice);
        self.any.store(true, Relaxed);
    }

    /// Updates the count for a notification that is added (1) or removed (-1). Called with the list
    /// locked.
    fn note(&self, notice: &Notification, change: i32) {
        if notice.asked {
            let asked = self.asked.peek().wrapping_add_signed(change);
            self.asked.store(asked, Relaxed);
        }
    }
}
