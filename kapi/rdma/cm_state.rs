// SPDX-License-Identifier: GPL-2.0

//! State of a connection identifier, and the lock that its handler holds.

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    current,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    task::Task,
    types::NotThreadSafe, //
};

/// State of an identifier: the task that runs its handler, and the steps that were done.
pub(super) struct CmState {
    /// Address of the task that runs the handler. 0 if none does.
    running: Atomic<usize>,
    /// The identifier was dropped in its handler.
    dropped: Atomic<bool>,
    /// Address resolution was started. The CM does not support a second one.
    pub(super) resolving: Atomic<bool>,
    /// A queue pair was created.
    pub(super) has_qp: Atomic<bool>,
    /// A connection exists or existed. From then on the CM keeps its connection object until the
    /// identifier is destroyed. Before, a failed connect may free that object, so it must not be
    /// used.
    pub(super) connecting: Atomic<bool>,
}

impl CmState {
    pub(super) fn new() -> Self {
        Self {
            running: Atomic::new(0),
            dropped: Atomic::new(false),
            resolving: Atomic::new(false),
            has_qp: Atomic::new(false),
            connecting: Atomic::new(false),
        }
    }

    fn this_task() -> usize {
        core::ptr::from_ref::<Task>(&**current!()) as usize
    }

    /// Returns `true` if the caller runs within the identifier's handler.
    pub(super) fn in_handler(&self) -> bool {
        // Only this task stores its own address, so it does not matter if the value is stale.
        self.running.load(ordering::Relaxed) == Self::this_task()
    }

    /// Runs `f` as the identifier's handler. Returns the result for the CM, which destroys the
    /// identifier unless it is 0.
    pub(super) fn handle(&self, f: impl FnOnce()) -> c_int {
        self.running.store(Self::this_task(), ordering::Relaxed);
        f();
        self.running.store(0, ordering::Relaxed);
        self.dropped.load(ordering::Relaxed).into()
    }

    /// Destroys the identifier. Within its handler, the CM does so when the handler returns.
    ///
    /// # Safety
    ///
    /// The caller must own the identifier `id`, which must have this state, and give it up.
    pub(super) unsafe fn destroy(&self, id: *mut bindings::rdma_cm_id) {
        if self.in_handler() {
            self.dropped.store(true, ordering::Relaxed);
        } else {
            // SAFETY: The caller owns the identifier.
            unsafe { bindings::rdma_destroy_id(id) };
        }
    }
}

/// Guard of the identifier's handler mutex. Within the handler the task holds the mutex already, so
/// it is not taken again.
pub(super) struct HandlerLock<'a> {
    raw: NonNull<bindings::rdma_cm_id>,
    taken: bool,
    _state: PhantomData<&'a CmState>,
    _not_send: NotThreadSafe,
}

impl<'a> HandlerLock<'a> {
    /// Locks the handler mutex. `raw` must be alive as long as `state`, the state in its context.
    pub(super) fn new(raw: NonNull<bindings::rdma_cm_id>, state: &'a CmState) -> Self {
        let taken = !state.in_handler();
        if taken {
            // SAFETY: The identifier is alive.
            unsafe { bindings::rdma_lock_handler(raw.as_ptr()) };
        }
        Self {
            raw,
            taken,
            _state: PhantomData,
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for HandlerLock<'_> {
    fn drop(&mut self) {
        if self.taken {
            // SAFETY: `new` has locked the mutex in this task.
            unsafe { bindings::rdma_unlock_handler(self.raw.as_ptr()) };
        }
    }
}
