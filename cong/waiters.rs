// SPDX-License-Identifier: GPL-2.0

//! Senders that wait until a congested port has room again.

use crate::kapi::{
    net::{poll, Sock},
    sync::{new_spinlock_bh, Fifo, Item, SpinLockBh},
};
use crate::msg::Socket;
use kernel::{prelude::*, sync::aref::ARef};

/// The sockets to wake when a port has room again. A socket that is closed has to be removed.
#[pin_data]
pub(crate) struct Waiters {
    #[pin]
    list: SpinLockBh<Fifo<ARef<Sock<Socket>>>>,
}

impl Waiters {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock_bh!(Fifo::new(), "Waiters::list"),
        })
    }

    /// Puts a socket on the list, once. The caller then looks at the congestion again: it may have
    /// ended before. Process context; may sleep.
    pub(crate) fn add(&self, sk: &Sock<Socket>) -> Result {
        let waiter = Item::new(sk.hold(), GFP_KERNEL)?;
        let mut list = self.list.lock();
        if list.iter().any(|other| core::ptr::eq(&**other, sk)) {
            drop(list);
            drop(waiter);
        } else {
            list.push_back(waiter);
        }
        Ok(())
    }

    /// Whether a socket is on the list: [`Self::wake_all`] has not been called since it was added.
    /// Any context.
    pub(crate) fn has(&self, sk: &Sock<Socket>) -> bool {
        self.list
            .lock()
            .iter()
            .any(|other| core::ptr::eq(&**other, sk))
    }

    /// Takes a socket off the list. Any context.
    pub(crate) fn remove(&self, sk: &Sock<Socket>) {
        let mut removed = Fifo::new();
        self.list
            .lock()
            .extract(|other| core::ptr::eq(&**other, sk), &mut removed);
        // A last reference goes here, after the lock.
    }

    /// Wakes all that wait, and forgets them. Any context, no lock held.
    pub(crate) fn wake_all(&self) {
        let mut woken = Fifo::new();
        woken.append(&mut *self.list.lock());
        while let Some(sk) = woken.pop_front() {
            sk.note_congestion_news();
            sk.wake_writers(poll::IN | poll::OUT | poll::WRBAND);
        }
    }
}
