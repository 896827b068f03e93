// SPDX-License-Identifier: GPL-2.0

//! Senders that wait until a congested port has room again.

use crate::kapi::{
    net::{poll, Sock},
    sync::{new_spinlock_bh, Fifo, Item, SpinLockBh},
};
use crate::msg::Socket;
use crate::proto::cong_bits;
use kernel::{prelude::*, sync::aref::ARef};

/// A socket that waits for ports. The masks have bit p for the ports that are p modulo 64.
struct Waiter {
    sk: ARef<Sock<Socket>>,
    ports: u64,
    /// Those of them that a send was refused for. For the others it waits itself.
    refused: u64,
}

impl Waiter {
    fn is(&self, sk: &Sock<Socket>) -> bool {
        core::ptr::eq(&*self.sk, sk)
    }
}

/// The sockets to wake when a port has room again. A socket that is closed has to be removed.
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

    /// Puts a socket on the list, once, to wait for a port; `refused` says that its call does not wait. The
    /// caller then looks at the congestion again: it may have ended before. Process context; may sleep.
    pub(crate) fn add(&self, sk: &Sock<Socket>, port: u16, refused: bool) -> Result {
        let ports = cong_bits::mask(port);
        let refused = if refused { ports } else { 0 };
        let fresh = Waiter {
            sk: sk.hold(),
            ports,
            refused,
        };
        let fresh = Item::new(fresh, GFP_KERNEL)?;
        let mut list = self.list.lock();
        let known = list.iter_mut().find(|waiter| waiter.is(sk));
        match known {
            Some(known) => {
                known.ports |= ports;
                known.refused |= refused;
                drop(list);
                drop(fresh);
            }
            None => list.push_back(fresh),
        }
        Ok(())
    }

    /// Whether a socket waits for a port: it has not been woken since it was added. Any context.
    pub(crate) fn has(&self, sk: &Sock<Socket>, port: u16) -> bool {
        let port = cong_bits::mask(port);
        self.list
            .lock()
            .iter()
            .any(|waiter| waiter.is(sk) && waiter.ports & port != 0)
    }

    /// Takes a socket off the list. Any context.
    pub(crate) fn remove(&self, sk: &Sock<Socket>) {
        let mut removed = Fifo::new();
        self.list
            .lock()
            .extract(|waiter| waiter.is(sk), &mut removed);
        // A last reference goes here, after the lock.
    }

    /// Wakes who waits for one of some ports, given modulo 64, and forgets them: who waits for others, too,
    /// looks for itself. Any context, no lock held.
    pub(crate) fn wake(&self, ports: u64) {
        let mut woken = Fifo::new();
        self.list
            .lock()
            .extract(|waiter| waiter.ports & ports != 0, &mut woken);
        tell(woken);
    }

    /// Wakes all that wait, and forgets them. Any context, no lock held.
    pub(crate) fn wake_all(&self) {
        let mut woken = Fifo::new();
        woken.append(&mut *self.list.lock());
        tell(woken);
    }
}

fn tell(mut woken: Fifo<Waiter>) {
    while let Some(waiter) = woken.pop_front() {
        waiter.sk.news.add(waiter.refused);
        waiter.sk.wake_writers(poll::IN | poll::OUT | poll::WRBAND);
    }
}
