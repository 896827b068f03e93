// SPDX-License-Identifier: GPL-2.0

//! Senders that wait until a congested port has room again.
//!
//! Any number of sockets may wait. The cost of adding, removing and waking a socket does not depend
//! on the number of other waiters or their ports.

use super::Socket;
use crate::kapi::{
    net::{poll, Sock},
    sync::{new_spinlock_bh, SpinLockBh},
};
use core::{array, mem, ptr};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::aref::ARef,
};

/// Number of buckets, the bits of a mask. Ports that are equal modulo this number share a bucket.
const PLACES: usize = u64::BITS as usize;

#[inline]
fn place_of(port: u16) -> usize {
    usize::from(port) % PLACES
}

/// A socket that waits for a port.
struct Waiter {
    sk: ARef<Sock<Socket>>,
    /// A nonblocking send was refused. Otherwise the call itself waits.
    refused: bool,
}

/// Waiters of one bucket, by the address of the socket.
type Queue = RBTree<usize, Waiter>;

/// Waiters by bucket. Allocated when a socket has to wait, freed when all are woken.
type Queues = Option<KBox<[Queue; PLACES]>>;

fn queue_at(queues: &mut Queues, place: usize) -> Option<&mut Queue> {
    queues.as_mut()?.get_mut(place)
}

fn key(sk: &Sock<Socket>) -> usize {
    ptr::from_ref(sk).addr()
}

/// The sockets to wake when a port has room again. A socket must be removed when it is closed.
#[pin_data]
pub(crate) struct Waiters {
    #[pin]
    by_place: SpinLockBh<Queues>,
}

impl Waiters {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_place <- new_spinlock_bh!(None, "Waiters::by_place"),
        })
    }

    /// Adds a socket that waits for a port. `refused` means that its call does not wait.
    ///
    /// The congestion may have ended before, so the caller checks it again afterwards.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn add(&self, sk: &Sock<Socket>, port: u16, refused: bool) -> Result {
        let waiter = Waiter {
            sk: sk.hold(),
            refused,
        };
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?.into_node(key(sk), waiter);
        let mut queues = self.by_place.lock();
        if queues.is_none() {
            drop(queues);
            let fresh = KBox::new(array::from_fn(|_| Queue::new()), GFP_KERNEL_ACCOUNT)?;
            queues = self.by_place.lock();
            // Another sender may have stored one meanwhile.
            queues.get_or_insert(fresh);
        }
        let queue = queue_at(&mut queues, place_of(port)).ok_or(ENOMEM)?;
        match queue.get_mut(&key(sk)) {
            Some(known) => {
                known.refused |= refused;
                drop(queues);
                drop(node);
            }
            None => drop(queue.insert(node)),
        }
        Ok(())
    }

    /// Returns `true` if a socket waits for a port, so it was not woken since it was added.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn has(&self, sk: &Sock<Socket>, port: u16) -> bool {
        let queues = self.by_place.lock();
        let queue = queues.as_ref().and_then(|all| all.get(place_of(port)));
        queue.is_some_and(|queue| queue.get(&key(sk)).is_some())
    }

    /// Removes a socket from all buckets.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn remove(&self, sk: &Sock<Socket>) {
        let mut gone = [const { None }; PLACES];
        let mut queues = self.by_place.lock();
        if let Some(all) = &mut *queues {
            for (queue, gone) in all.iter_mut().zip(&mut gone) {
                *gone = queue.remove_node(&key(sk));
            }
        }
        drop(queues);
        // This may drop the last reference, so it happens without the lock.
        drop(gone);
    }

    /// Wakes and removes the waiters of some ports, which are given as a mask modulo 64.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn wake(&self, ports: u64) {
        for place in (0..PLACES).filter(|place| ports & bit(*place) != 0) {
            let mut queues = self.by_place.lock();
            let Some(queue) = queue_at(&mut queues, place) else {
                return;
            };
            let woken = mem::replace(queue, Queue::new());
            drop(queues);
            tell(&woken, place);
        }
    }

    /// Wakes and removes all waiters, and reports only that they can write.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn wake_writers(&self) {
        let woken = self.by_place.lock().take();
        let queues = woken.iter().flat_map(|it| it.iter());
        for waiter in queues.flat_map(Queue::values) {
            waiter.sk.wake_writers(poll::OUT);
        }
    }

    /// Wakes and removes all waiters, and reports that their ports have room.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn wake_all(&self) {
        let woken = self.by_place.lock().take();
        if let Some(woken) = woken {
            for (place, queue) in woken.iter().enumerate() {
                tell(queue, place);
            }
        }
    }
}

/// Returns the mask of a bucket.
fn bit(place: usize) -> u64 {
    1 << (place % PLACES)
}

fn tell(woken: &Queue, place: usize) {
    for waiter in woken.values() {
        let refused = if waiter.refused { bit(place) } else { 0 };
        waiter.sk.cong_notify.add(refused);
        waiter.sk.wake_writers(poll::IN | poll::OUT | poll::WRBAND);
    }
}
