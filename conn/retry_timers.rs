// SPDX-License-Identifier: GPL-2.0

//! Sockets that have to wait before they may begin an operation, see [`super::fault_limiter`], or
//! for room in a pool.
//!
//! A nonblocking call fails at once, and its program waits for room to write. Work of the node,
//! `retry_work`, wakes the socket when its time has come.

use crate::{
    kapi::{
        net::Sock,
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
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
        atomic::Relaxed, //
    }, //
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

    /// Adds a socket whose time comes in `wait_ns`. If it already waits for an earlier time, that
    /// time stays. If it is the first one, `arm` schedules the work in this number of milliseconds.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep. `arm` is called with a spinlock held.
    pub(super) fn add(&self, sk: &Sock<Socket>, wait_ns: u64, arm: impl FnOnce(u32)) -> Result {
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let now = time::monotonic_ns();
        let at = now.saturating_add(wait_ns);
        let held = sk.hold();
        let mut waiting = self.waiting.lock();
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
            arm(delay_ms(at.saturating_sub(now)));
        }
        drop(waiting);
        // The caller has another reference, so this does not drop the last one.
        drop((before, same));
        Ok(())
    }

    /// Removes the first socket whose time has come. If there is none, `arm` schedules the work for
    /// the time of the next one, in this number of milliseconds.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt. `arm` is called with a spinlock held.
    pub(super) fn take_due(&self, arm: impl FnOnce(u32)) -> Option<ARef<Sock<Socket>>> {
        let mut waiting = self.waiting.lock();
        let cursor = waiting.cursor_front_mut()?;
        let ((at, _), sk) = cursor.current();
        let left = at.saturating_sub(time::monotonic_ns());
        if left > 0 {
            arm(delay_ms(left));
            return None;
        }
        sk.retry_at.store(0, Relaxed);
        let (_, gone) = cursor.remove_current();
        drop(waiting);
        let (_, sk) = gone.to_key_value();
        Some(sk)
    }
}
