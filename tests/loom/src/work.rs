// SPDX-License-Identifier: GPL-2.0

//! A work item with the barriers of the kernel's.

use crate::sync::atomic::{Atomic, Full, Relaxed};
use loom::sync::{
    atomic::{fence, Ordering},
    Condvar, Mutex,
};

/// `struct work_struct` and its queue.
pub(crate) struct Work {
    /// `WORK_STRUCT_PENDING`.
    pending: Atomic<bool>,
    queued: Mutex<bool>,
    more: Condvar,
}

impl Work {
    pub(crate) fn new() -> Self {
        let pending = Atomic::new(false);
        pending.store(false, Relaxed);
        Self {
            pending,
            queued: Mutex::new(false),
            more: Condvar::new(),
        }
    }

    /// `queue_work()`.
    pub(crate) fn enqueue(&self) {
        if !self.pending.xchg(true, Full) {
            *self.queued.lock().unwrap() = true;
            self.more.notify_one();
        }
    }

    /// Waits until the item is queued, and dequeues it, so that it can be queued again.
    /// `set_work_pool_and_clear_pending()`.
    pub(crate) fn next(&self) {
        let mut queued = self.queued.lock().unwrap();
        while !*queued {
            queued = self.more.wait(queued).unwrap();
        }
        *queued = false;
        drop(queued);
        fence(Ordering::Release);
        self.pending.store(false, Relaxed);
        fence(Ordering::SeqCst);
    }
}
