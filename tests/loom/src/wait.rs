// SPDX-License-Identifier: GPL-2.0

//! A wait queue with the barriers of the kernel's.
//!
//! If a wakeup is lost, a thread waits forever and loom reports a deadlock.

use loom::sync::{
    atomic::{fence, AtomicUsize, Ordering},
    Condvar, Mutex,
};

/// `struct wait_queue_head`, with wakeups of one sleeper or of all.
pub(crate) struct WaitQueue {
    sleepers: Mutex<Sleepers>,
    /// Number of sleepers, read without the lock.
    count: AtomicUsize,
    woken: Condvar,
}

struct Sleepers {
    /// Sleeping threads. A wakeup removes them.
    list: Vec<usize>,
    next: usize,
}

impl WaitQueue {
    pub(crate) fn new() -> Self {
        Self {
            sleepers: Mutex::new(Sleepers {
                list: Vec::new(),
                next: 0,
            }),
            count: AtomicUsize::new(0),
            woken: Condvar::new(),
        }
    }

    /// `rds_rust_sk_wait()` without a signal or a time limit.
    pub(crate) fn wait(&self, condition: impl Fn() -> bool) {
        loop {
            let this = self.prepare();
            let ready = condition();
            let mut sleepers = self.sleepers.lock().unwrap();
            while !ready && sleepers.list.contains(&this) {
                sleepers = self.woken.wait(sleepers).unwrap();
            }
            sleepers.list.retain(|other| *other != this);
            self.count.store(sleepers.list.len(), Ordering::Relaxed);
            if ready {
                return;
            }
        }
    }

    /// `prepare_to_wait_event()`.
    fn prepare(&self) -> usize {
        let mut sleepers = self.sleepers.lock().unwrap();
        let this = sleepers.next;
        sleepers.next += 1;
        sleepers.list.push(this);
        self.count.store(sleepers.list.len(), Ordering::Relaxed);
        // Barrier of set_current_state().
        fence(Ordering::SeqCst);
        this
    }

    /// `rds_rust_sk_wake()` for exclusive waiters.
    pub(crate) fn wake_one(&self) {
        self.wake(1);
    }

    /// `rds_rust_sk_wake()` for non-exclusive waiters.
    pub(crate) fn wake_all(&self) {
        self.wake(usize::MAX);
    }

    fn wake(&self, most: usize) {
        // Barrier of skwq_has_sleeper(). The load lets loom switch threads before it.
        self.count.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap();
        let most = most.min(sleepers.list.len());
        // autoremove_wake_function().
        sleepers.list.drain(..most);
        self.count.store(sleepers.list.len(), Ordering::Relaxed);
        self.woken.notify_all();
    }
}
