// SPDX-License-Identifier: GPL-2.0

//! A workqueue of our own.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! The system's queues are not for a module: nothing waits for their items before the module's text
//! goes away. Dropping an [`OwnedQueue`] does.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{HasDelayedWork, HasWork, Queue, RawWorkItem, Work, WorkItem},
};

/// A workqueue that is drained and destroyed when it is dropped. Dropping sleeps.
///
/// # Invariants
///
/// `queue` is a live workqueue that `self` owns.
pub(crate) struct OwnedQueue {
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: A workqueue may be used and destroyed from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: Enqueueing is safe from any number of contexts at once.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Makes an unbound queue whose items may run side by side, also under memory pressure, because
    /// writing memory back may depend on the messages that they move. They run
    /// [`without_io`](crate::kapi::task::without_io) for the same reason. May sleep.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        // SAFETY: `name` is a NUL-terminated string that lives for ever.
        let queue = unsafe { bindings::rds_alloc_workqueue(name.as_char_ptr(), flags, 0) };
        // INVARIANT: The new queue has no other owner.
        Ok(Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
        })
    }

    fn queue(&self) -> &Queue {
        // SAFETY: By the type invariants the queue is alive as long as `self`.
        unsafe { Queue::from_raw(self.queue.as_ptr().cast()) }
    }

    /// Waits until all items that are queued now have run. Sleeps.
    pub(crate) fn flush(&self) {
        // SAFETY: By the type invariants the queue is alive.
        unsafe { bindings::__flush_workqueue(self.queue.as_ptr()) }
    }

    /// Lets the item run soon; nothing happens if it waits to run already. Any context.
    pub(crate) fn enqueue<T, const ID: u64>(&self, item: Arc<T>)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
        Arc<T>: RawWorkItem<ID, EnqueueOutput = Result<(), Arc<T>>> + Send + 'static,
    {
        // An item that waits already holds a reference of its own, so this one can go.
        drop(self.queue().enqueue::<_, ID>(item));
    }

    /// Sets the item's timer to `delay_ms` milliseconds from now, whether it was set before or not.
    /// Any context.
    pub(crate) fn arm<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.set_timer::<T, ID>(item, delay_ms, true);
    }

    /// As [`Self::arm`], but a timer that is set stays as it is. Any context.
    pub(crate) fn arm_unless_set<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.set_timer::<T, ID>(item, delay_ms, false);
    }

    fn set_timer<T, const ID: u64>(&self, item: Arc<T>, delay_ms: u32, anew: bool)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let raw = Arc::into_raw(item).cast_mut();
        let work = delayed_work::<T, ID>(raw);
        let delay = kernel::time::msecs_to_jiffies(delay_ms);
        let queue = self.queue.as_ptr();
        // SAFETY: The queue is alive by the type invariants. The item is initialised, as it lives
        // in an `Arc`, and the reference that `raw` stands for keeps it alive until it has run.
        let left = unsafe { bindings::rds_arm_delayed_work(queue, work, delay, anew) };
        for _ in 0..left {
            // SAFETY: Each set timer has one reference; so many do not belong to one any more.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the queue is ours; this drains it before it goes.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) }
    }
}

/// Takes the item off its queue, and waits until it does not run. Sleeps.
pub(crate) fn cancel<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item lives in the `Arc` that we borrow.
    let work = unsafe { T::raw_get_work(raw) };
    // SAFETY: As above, for the field.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: The work is initialised, as it lives in an `Arc`.
    if unsafe { bindings::cancel_work_sync(work.cast()) } {
        // SAFETY: The work was pending and will not run: the reference that it held is ours now.
        drop(unsafe { Arc::from_raw(raw.cast_const()) });
    }
}

/// The C structure of the item's delayed work.
fn delayed_work<T, const ID: u64>(item: *mut T) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    // SAFETY: `item` points to a live `T`: the callers got it from an `Arc`.
    let work = unsafe { T::raw_get_work(item) };
    // SAFETY: As above, for the field.
    let work = unsafe { Work::raw_get(work) };
    // `work` is the first field of `struct delayed_work`, as `HasDelayedWork` promises.
    work.cast()
}

/// Stops the item's timer or takes it off its queue, and waits until it does not run. Sleeps.
pub(crate) fn cancel_delayed<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item lives in the `Arc` that we borrow.
    if unsafe { bindings::cancel_delayed_work_sync(delayed_work::<T, ID>(raw)) } {
        // SAFETY: The work was pending and will not run: the reference that it held is ours now.
        drop(unsafe { Arc::from_raw(raw.cast_const()) });
    }
}
