// SPDX-License-Identifier: GPL-2.0

//! Workqueues owned by the module.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! A module must not use the system's workqueues: nothing waits for its items before its code is
//! freed. Dropping an [`OwnedQueue`] waits for them.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        HasDelayedWork,
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

/// A workqueue. Dropping it drains and destroys it, which sleeps.
///
/// # Invariants
///
/// `queue` is a live workqueue that `self` owns.
pub(crate) struct OwnedQueue {
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: A workqueue may be used and destroyed from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: Work may be queued from several contexts at once.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Creates an unbound queue whose items may run concurrently.
    ///
    /// Items also run under memory pressure (`WQ_MEM_RECLAIM`), because writeback may depend on the
    /// messages that they move. For the same reason the items use
    /// [`without_io`](crate::kapi::task::without_io).
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        // SAFETY: `name` is a static NUL-terminated string.
        let queue = unsafe { bindings::rds_rust_alloc_workqueue(name.as_char_ptr(), flags, 0) };
        // INVARIANT: The new queue has no other owner.
        Ok(Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
        })
    }

    fn queue(&self) -> &Queue {
        // SAFETY: By the type invariants the queue is alive as long as `self`.
        unsafe { Queue::from_raw(self.queue.as_ptr().cast()) }
    }

    /// Waits until all items that are queued now have run.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn flush(&self) {
        // SAFETY: By the type invariants the queue is alive.
        unsafe { bindings::__flush_workqueue(self.queue.as_ptr()) }
    }

    /// Queues an item, unless it is queued already.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn enqueue<T, const ID: u64>(&self, item: Arc<T>)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
        Arc<T>: RawWorkItem<ID, EnqueueOutput = Result<(), Arc<T>>> + Send + 'static,
    {
        // A queued item already holds a reference of its own, so this reference is dropped.
        drop(self.queue().enqueue::<_, ID>(item));
    }

    /// Sets the item's timer to `delay_ms` milliseconds from now. A timer that is already set is
    /// replaced.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn arm<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.set_timer::<T, ID>(item, delay_ms, true);
    }

    /// Sets the item's timer as [`Self::arm`] does, unless it is already set.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn arm_unless_set<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.set_timer::<T, ID>(item, delay_ms, false);
    }

    fn set_timer<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32, restart: bool)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let raw = Arc::into_raw(item).cast_mut();
        let work = delayed_work::<T, ID>(raw);
        let delay = kernel::time::msecs_to_jiffies(delay_ms);
        let queue = self.queue.as_ptr();
        // SAFETY: The queue is alive by the type invariants. The item is initialised, because it is
        // in an `Arc`. The reference in `raw` keeps it alive until it has run.
        let left = unsafe { bindings::rds_rust_arm_delayed_work(queue, work, delay, restart) };
        for _ in 0..left {
            // SAFETY: Each set timer holds one reference. The function returns the number of
            // references that no timer holds any more.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the queue; the call drains it first.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) }
    }
}

/// Removes the item from its queue, and waits until it is not running.
///
/// # Context
///
/// Sleeps.
pub(crate) fn cancel<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item is in the borrowed `Arc`.
    let work = unsafe { T::raw_get_work(raw) };
    // SAFETY: As above, for the field.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: The work is initialised, because it is in an `Arc`.
    if unsafe { bindings::cancel_work_sync(work.cast()) } {
        // SAFETY: The work was pending and will not run, so its reference is no longer in use.
        drop(unsafe { Arc::from_raw(raw.cast_const()) });
    }
}

/// Waits until the item is neither queued nor running. It may be queued again meanwhile, and is not
/// waited for then.
///
/// # Context
///
/// Sleeps.
pub(crate) fn flush<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item is in the borrowed `Arc`.
    let work = unsafe { T::raw_get_work(raw) };
    // SAFETY: As above, for the field.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: The work is initialised, because it is in an `Arc`.
    unsafe { bindings::flush_work(work.cast()) };
}

/// Returns the C structure of the item's delayed work.
fn delayed_work<T, const ID: u64>(item: *mut T) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    // SAFETY: `item` points to a live `T`, because the callers got it from an `Arc`.
    let work = unsafe { T::raw_get_work(item) };
    // SAFETY: As above, for the field.
    let work = unsafe { Work::raw_get(work) };
    // `work` is the first field of `struct delayed_work`, as `HasDelayedWork` promises.
    work.cast()
}

/// Stops the item's timer or removes the item from its queue, and waits until it is not running.
///
/// # Context
///
/// Sleeps.
pub(crate) fn cancel_delayed<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item is in the borrowed `Arc`.
    if unsafe { bindings::cancel_delayed_work_sync(delayed_work::<T, ID>(raw)) } {
        // SAFETY: The work was pending and will not run, so its reference is no longer in use.
        drop(unsafe { Arc::from_raw(raw.cast_const()) });
    }
}
