// SPDX-License-Identifier: GPL-2.0

//! Senders that wait until a congested port has room again.

use crate::kapi::{
    net::{poll, Sock},
    sync::{new_spinlock_bh, Fifo, Linked, SpinLockBh},
};
use crate::msg::Socket;
use kernel::{prelude::*, sync::aref::ARef};

struct Waiter {
    next: Option<KBox<Waiter>>,
    sk: ARef<Sock<Socket>>,
}

impl Linked for Waiter {
    fn next(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}

/// The sockets to wake when a port has room again.
#[pin_data]
pub(crate) struct Waiters {
    #[pin]
    list: SpinLockBh<Fifo<Waiter>>,
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
        let waiter = KBox::new(
            Waiter {
                next: None,
                sk: sk.hold(),
            },
            GFP_KERNEL,
        )?;
        let mut list = self.list.lock();
        let mut there = false;
        list.for_each(|other| there |= core::ptr::eq(&*other.sk, sk));
        if there {
            drop(list);
            drop(waiter);
        } else {
            list.push_back(waiter);
        }
        Ok(())
    }

    /// Wakes all that wait, and forgets them. Any context, no lock held.
    pub(crate) fn wake_all(&self) {
        let mut woken = Fifo::new();
        woken.append(&mut *self.list.lock());
        while let Some(waiter) = woken.pop_front() {
            waiter.sk.note_congestion_news();
            waiter.sk.wake_writers(poll::IN | poll::OUT | poll::WRBAND);
        }
    }
}
