// SPDX-License-Identifier: GPL-2.0

//! Sockets that have to wait before they may begin an operation, see [`super::fault_limiter`], or
//! for room in a pool.
//!
//! A nonblocking call fails at once, and its program waits for room to write. Work of the node
//! wakes the socket when its time has come.

use super::Node;
use crate::{
    kapi::{
        net::{
            poll,
            Sock, //
        },
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
        task::without_io,
        time, //
    },
    socket::Socket, //
};
use core::ptr;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

/// Time in nanoseconds at which a socket may begin its operation, and the address of the socket.
type RetryKey = (u64, usize);

/// Waiting sockets, ordered by time. A socket must be removed when it is closed.
#[pin_data]
pub(crate) struct RetryTimers {
    #[pin]
    waiting: SpinLockBh<RBTree<RetryKey, ARef<Sock<Socket>>>>,
}

fn retry_key(sk: &Sock<Socket>, at: u64) -> RetryKey {
    (at, ptr::from_ref(sk).addr())
}

fn delay_ms(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

impl RetryTimers {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_spinlock_bh!(RBTree::new(), "RetryTimers::waiting"),
        })
    }

    /// Returns `true` if the socket has to wait, so there is no room to write.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn has(sk: &Sock<Socket>) -> bool {
        let at = sk.retry_at.read_once();
        at != 0 && time::monotonic_ns() < at
    }

    /// Removes a socket that has begun an operation, or is closed. Returns `true` if it was
    /// waiting. Another thread of the program may still wait for the removed time.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(crate) fn remove(&self, sk: &Sock<Socket>) -> bool {
        sk.retry_at.read_once() != 0 && self.remove_waiting(sk)
    }

    #[cold]
    fn remove_waiting(&self, sk: &Sock<Socket>) -> bool {
        let mut waiting = self.waiting.lock();
        let gone = waiting.remove_node(&retry_key(sk, sk.retry_at.read_once()));
        sk.retry_at.store(0, Relaxed);
        drop(waiting);
        // The caller has another reference, so this does not drop the last one.
        let was_there = gone.is_some();
        drop(gone);
        was_there
    }

    /// Removes the first socket whose time has come. If there is none, schedules the work for the
    /// time of the next one.
    fn take_due(&self, node: &Arc<Node>) -> Option<ARef<Sock<Socket>>> {
        let mut waiting = self.waiting.lock();
        let cursor = waiting.cursor_front_mut()?;
        let ((at, _), sk) = cursor.current();
        let left = at.saturating_sub(time::monotonic_ns());
        if left > 0 {
            node.queue.arm::<_, 2>(node.clone(), delay_ms(left));
            return None;
        }
        sk.retry_at.store(0, Relaxed);
        let (_, gone) = cursor.remove_current();
        drop(waiting);
        let (_, sk) = gone.to_key_value();
        Some(sk)
    }
}

impl Node {
    /// Makes `poll(2)` report no room to write until `wait_ns` have passed, and wakes the socket
    /// then. If the socket already waits for an earlier time, for another peer, that time stays.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn wake_writers_after(self: &Arc<Self>, sk: &Sock<Socket>, wait_ns: u64) -> Result {
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let now = time::monotonic_ns();
        let at = now.saturating_add(wait_ns);
        let held = sk.hold();
        let mut waiting = self.retry_timers.waiting.lock();
        let earlier = sk.retry_at.read_once();
        let before = waiting.remove_node(&retry_key(sk, earlier));
        // A time that has passed would let `poll(2)` report room at once.
        let stays = before.is_some() && earlier > now;
        let at = if stays { at.min(earlier) } else { at };
        let same = waiting.insert(place.into_node(retry_key(sk, at), held));
        sk.retry_at.store(at, Relaxed);
        // With the lock held. Otherwise a later time could overwrite an earlier one.
        if waiting
            .iter()
            .next()
            .is_some_and(|(first, _)| first.0 >= at)
        {
            self.queue
                .arm::<_, 2>(self.clone(), delay_ms(at.saturating_sub(now)));
        }
        drop(waiting);
        // The caller has another reference, so this does not drop the last one.
        drop((before, same));
        Ok(())
    }
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Node { self.retry_work }
}

/// Wakes the sockets whose time has come.
impl WorkItem<2> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            while let Some(sk) = this.retry_timers.take_due(&this) {
                sk.wake_writers(poll::OUT);
            }
        });
    }
}
