// SPDX-License-Identifier: GPL-2.0

//! What a program is told of its operations on memory of peers.

use crate::kapi::sync::{new_spinlock_bh, Fifo, Item, Peek, SpinLockBh};
use crate::proto::rdma::Status;
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// How an operation has ended.
pub(crate) struct Notification {
    /// What the program calls the operation by.
    pub(crate) token: u64,
    pub(crate) status: Status,
    /// The program has asked to be told. Otherwise it is only for calls that have room for it.
    pub(crate) asked: bool,
}

/// The most notices that a program may leave unread.
pub(crate) const MAX_UNREAD: u32 = 16 << 10;

/// Notices that nobody has read yet, in the order in which the program is to read them.
#[pin_data]
pub(crate) struct NotifyQueue {
    #[pin]
    list: SpinLockBh<Fifo<Notification>>,
    /// Whether there is any: changed with the lock, and read without it.
    any: Atomic<bool>,
    /// How many the program has asked for, likewise.
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

    /// Whether there is one. Any context.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.peek()
    }

    /// Whether there is one for a call: for those without room only what the program has asked for. Any context.
    #[inline]
    pub(crate) fn any_for(&self, has_room: bool) -> bool {
        self.any() && (has_room || self.asked.peek() != 0)
    }

    /// Whether the program has left so many unread that it gets no more. Any context.
    pub(crate) fn is_full(&self) -> bool {
        self.asked.peek() >= MAX_UNREAD
    }

    /// Adds one. Without effect if the program has not asked for it, and reads none. The caller wakes readers. Any context
    /// but a hard interrupt.
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

    /// Takes the oldest one. Any context but a hard interrupt.
    pub(crate) fn take(&self) -> Option<Item<Notification>> {
        let mut list = self.list.lock();
        let notice = list.pop_front()?;
        self.note(&notice, -1);
        self.any.store(!list.is_empty(), Relaxed);
        Some(notice)
    }

    /// Drops the oldest one that the program has asked for, and those before it. False if there is none. Any context but a
    /// hard interrupt.
    pub(crate) fn miss(&self) -> bool {
        while let Some(notice) = self.take() {
            if notice.asked {
                return true;
            }
        }
        false
    }

    /// Puts back what was taken last, and not told. Any context but a hard interrupt.
    pub(crate) fn put_back(&self, notice: Item<Notification>) {
        let mut list = self.list.lock();
        self.note(&notice, 1);
        list.push_front(notice);
        self.any.store(true, Relaxed);
    }

    /// One comes, or goes. Called with the list locked.
    fn note(&self, notice: &Notification, change: i32) {
        if notice.asked {
            let asked = self.asked.peek().wrapping_add_signed(change);
            self.asked.store(asked, Relaxed);
        }
    }
}
