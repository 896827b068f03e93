// SPDX-License-Identifier: GPL-2.0

//! Senders that wait until a congested port has room again.
//!
//! Any number of sockets may wait. The cost of adding, removing and waking a socket does not depend
//! on the number of other waiters or their ports.

use super::forward::{
    ForwardSocket,
    Socket, //
};
use crate::kapi::{
    net::{
        poll,
        Sock, //
    },
    sync::{
        new_spinlock_bh,
        ReadOnce,
        SpinLockBh, //
    }, //
};
use core::{
    array,
    mem,
    ptr, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full, //
        }, //
    }, //
};

/// Number of buckets, the bits of a mask. Ports that are equal modulo this number share a bucket.
const BUCKETS: usize = u64::BITS as usize;

/// Maximum number of sockets that one call wakes with softirqs off.
const AT_ONCE: usize = 64;

#[inline]
fn bucket_of(port: u16) -> usize {
    usize::from(port) % BUCKETS
}

/// A socket that waits for a port.
struct Waiter {
    sk: ARef<Sock<Socket>>,
    /// A nonblocking send was refused. Otherwise the call itself waits.
    refused: bool,
}

impl Waiter {
    /// Wakes the socket, and reports that ports of a bucket have room.
    fn wake(&self, bucket: usize) {
        let refused = if self.refused { bit(bucket) } else { 0 };
        self.sk.cong_notify().add(refused);
        self.sk.wake_writers(poll::IN | poll::OUT | poll::WRBAND);
    }
}

/// Waiters of one bucket, by the address of the socket.
type Queue = RBTree<usize, Waiter>;

/// Waiters by bucket. Allocated when a socket has to wait, freed when all are woken.
type Queues = Option<KBox<[Queue; BUCKETS]>>;

fn queue_at(queues: &mut Queues, bucket: usize) -> Option<&mut Queue> {
    queues.as_mut()?.get_mut(bucket)
}

fn key(sk: &Sock<Socket>) -> usize {
    ptr::from_ref(sk).addr()
}

/// The sockets to wake when a port has room again. A socket must be removed when it is closed.
#[pin_data]
pub(crate) struct Waiters {
    #[pin]
    by_bucket: SpinLockBh<Queues>,
    /// Mask of the ports whose waiters [`Self::wake_some`] has left to [`Self::wake_rest`].
    rest: Atomic<u64>,
}

impl Waiters {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_bucket <- new_spinlock_bh!(None, "Waiters::by_bucket"),
            rest: Atomic::new(0),
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
        let mut queues = self.by_bucket.lock();
        if queues.is_none() {
            drop(queues);
            let fresh = KBox::new(array::from_fn(|_| Queue::new()), GFP_KERNEL_ACCOUNT)?;
            queues = self.by_bucket.lock();
            // Another sender may have stored one meanwhile.
            queues.get_or_insert(fresh);
        }
        let queue = queue_at(&mut queues, bucket_of(port)).ok_or(ENOMEM)?;
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
        let queues = self.by_bucket.lock();
        let queue = queues.as_ref().and_then(|all| all.get(bucket_of(port)));
        queue.is_some_and(|queue| queue.get(&key(sk)).is_some())
    }

    /// Removes a socket from all buckets.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn remove(&self, sk: &Sock<Socket>) {
        let mut gone = [const { None }; BUCKETS];
        let mut queues = self.by_bucket.lock();
        if let Some(all) = &mut *queues {
            for (queue, gone) in all.iter_mut().zip(&mut gone) {
                *gone = queue.remove_node(&key(sk));
            }
        }
        drop(queues);
        // This may drop the last reference, so it happens without the lock.
        drop(gone);
    }

    /// Wakes and removes waiters of some ports, which are given as a mask modulo 64. A softirq must
    /// not wake any number of sockets. So if there are more than [`AT_ONCE`], the rest is left to
    /// [`Self::wake_rest`], and the result is `true`.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn wake_some(&self, ports: u64) -> bool {
        let (mut left, mut rest) = (AT_ONCE, ports);
        for bucket in (0..BUCKETS).filter(|bucket| ports & bit(*bucket) != 0) {
            let mut woken = [const { None }; AT_ONCE];
            let mut queues = self.by_bucket.lock();
            let Some(queue) = queue_at(&mut queues, bucket) else {
                return false;
            };
            for slot in woken.iter_mut().take(left) {
                let Some(cursor) = queue.cursor_front_mut() else {
                    break;
                };
                let (_, waiter) = cursor.remove_current();
                *slot = Some(waiter);
            }
            drop(queues);
            for waiter in woken.into_iter().flatten() {
                let (_, waiter) = waiter.to_key_value();
                waiter.wake(bucket);
                left = left.saturating_sub(1);
            }
            if left == 0 {
                let mut old = self.rest.read_once();
                while let Err(now) = self.rest.cmpxchg(old, old | rest, Full) {
                    old = now;
                }
                return true;
            }
            rest &= !bit(bucket);
        }
        false
    }

    /// Wakes and removes the waiters that [`Self::wake_some`] has left.
    ///
    /// # Context
    ///
    /// Process context, no lock held.
    pub(crate) fn wake_rest(&self) {
        let ports = self.rest.xchg(0, Full);
        for bucket in (0..BUCKETS).filter(|bucket| ports & bit(*bucket) != 0) {
            let mut queues = self.by_bucket.lock();
            let Some(queue) = queue_at(&mut queues, bucket) else {
                return;
            };
            let woken = mem::replace(queue, Queue::new());
            drop(queues);
            wake_bucket(&woken, bucket);
        }
    }

    /// Wakes and removes all waiters, and reports only that they can write.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn wake_writers(&self) {
        let woken = self.by_bucket.lock().take();
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
        let woken = self.by_bucket.lock().take();
        if let Some(woken) = woken {
            for (bucket, queue) in woken.iter().enumerate() {
                wake_bucket(queue, bucket);
            }
        }
    }
}

/// Returns the mask of a bucket.
fn bit(bucket: usize) -> u64 {
    1 << (bucket % BUCKETS)
}

fn wake_bucket(woken: &Queue, bucket: usize) {
    for waiter in woken.values() {
        waiter.wake(bucket);
    }
}
