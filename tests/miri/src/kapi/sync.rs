// SPDX-License-Identifier: GPL-2.0

//! `kapi::sync`: the queue and `ReadOnce` are those of the module. The lock is that of the host,
//! and timers run when a test calls [`run_timers`].

use crate::{sync::Arc, workqueue::WorkItem};
use std::{cell::RefCell, sync};

#[path = "../../../../kapi/sync/fifo.rs"]
mod fifo;
#[path = "../../../../kapi/sync/read_once.rs"]
mod read_once;

pub(crate) use fifo::{Fifo, Item, Pick, Walk};
pub(crate) use read_once::ReadOnce;

pub(crate) struct SpinLockBh<T>(sync::Mutex<T>);

impl<T> SpinLockBh<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> sync::MutexGuard<'_, T> {
        crate::bindings::device(|device| device.unmapped = 0);
        self.0.lock().unwrap()
    }
}

macro_rules! new_spinlock_bh {
    ($value:expr, $name:literal) => {
        $crate::kapi::sync::SpinLockBh::new($value)
    };
}
pub(crate) use new_spinlock_bh;

/// A timer: the address of its item, and its function.
type Timer = (*const (), Box<dyn FnOnce()>);

thread_local! {
    static TIMERS: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct OwnedQueue;

impl OwnedQueue {
    pub(crate) fn arm<T, const ID: u64>(&self, item: Arc<T>, _delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + 'static,
    {
        cancel_delayed::<T, ID>(&item);
        let owner = Arc::as_ptr(&item).cast();
        TIMERS.with_borrow_mut(|timers| timers.push((owner, Box::new(|| T::run(item)))));
    }
}

pub(crate) fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) {
    let owner = Arc::as_ptr(item).cast();
    let gone: Vec<_> =
        TIMERS.with_borrow_mut(|timers| timers.extract_if(.., |it| it.0 == owner).collect());
    drop(gone);
}

/// Runs the timers that are set, and returns their number.
pub(crate) fn run_timers() -> usize {
    let timers = TIMERS.take();
    let count = timers.len();
    for (_, run) in timers {
        run();
    }
    count
}
