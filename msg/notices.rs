// SPDX-License-Identifier: GPL-2.0

//! What a program is told of its operations on memory of peers.

use crate::kapi::sync::{new_spinlock_bh, Fifo, Item, Peek, SpinLockBh};
use crate::proto::rdma::Status;
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// How an operation has ended.
pub(crate) struct Notice {
    /// What the program calls the operation by.
    pub(crate) token: u64,
    pub(crate) status: Status,
}

/// Notices that nobody has read yet, in the order in which the operations ended.
#[pin_data]
pub(crate) struct Notices {
    #[pin]
    list: SpinLockBh<Fifo<Notice>>,
    /// Whether there is any: read without the lock.
    any: Atomic<bool>,
}

impl Notices {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock_bh!(Fifo::new(), "Socket::notices"),
            any: Atomic::new(false),
        })
    }

    /// Whether there is one. Any context.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.peek()
    }

    /// How many there are. Any context but a hard interrupt.
    pub(crate) fn len(&self) -> usize {
        if self.any() {
            self.list.lock().len()
        } else {
            0
        }
    }

    /// Adds one. The caller wakes readers. Any context but a hard interrupt.
    pub(crate) fn add(&self, notice: Item<Notice>) {
        let mut list = self.list.lock();
        list.push_back(notice);
        self.any.store(true, Relaxed);
    }

    /// Takes the oldest one. Any context but a hard interrupt.
    pub(crate) fn take(&self) -> Option<Item<Notice>> {
        let mut list = self.list.lock();
        let notice = list.pop_front();
        self.any.store(!list.is_empty(), Relaxed);
        notice
    }

    /// Puts back what was taken last, and not told. Any context but a hard interrupt.
    pub(crate) fn put_back(&self, notice: Item<Notice>) {
        let mut list = self.list.lock();
        list.push_front(notice);
        self.any.store(true, Relaxed);
    }
}
