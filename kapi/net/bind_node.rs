// SPDX-License-Identifier: GPL-2.0

//! The part of a socket that says where it is bound.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::atomic::{
        AtomicU32,
        Ordering::{
            Acquire,
            Relaxed,
            Release, //
        }, //
    }, //
};
use kernel::sync::aref::{
    ARef,
    AlwaysRefCounted, //
};

/// Values of [`BindNode::state`].
const FREE: u32 = 0;
const BUSY: u32 = 1;
const BOUND: u32 = 2;

/// The part of a socket that holds its bound address `B`, and the link of its
/// [`BoundList`](super::BoundList) to the next socket `S`.
///
/// It is equivalent to `SetOnce`, but makes no function calls, because each message reads it.
///
/// # Invariants
///
/// - `state` changes from [`FREE`] to [`BUSY`] to [`BOUND`] and never back.
/// - `bound` is initialised and does not change once `state` is [`BOUND`]. The call that set
///   [`BUSY`] has exclusive access to `bound` until then.
/// - `next` belongs to the list that contains the socket. Outside a list it is `None` and
///   nothing refers to it.
/// - A socket enters a list at most once: by the call that set [`BUSY`].
pub(super) struct BindNode<B, S: AlwaysRefCounted> {
    state: AtomicU32,
    bound: UnsafeCell<MaybeUninit<B>>,
    pub(super) next: UnsafeCell<Option<ARef<S>>>,
}

impl<B, S: AlwaysRefCounted> BindNode<B, S> {
    pub(super) const fn new() -> Self {
        // INVARIANT: Nothing else has access to the new value.
        Self {
            state: AtomicU32::new(FREE),
            bound: UnsafeCell::new(MaybeUninit::uninit()),
            next: UnsafeCell::new(None),
        }
    }

    #[inline]
    pub(super) fn bound(&self) -> Option<&B> {
        if self.state.load(Acquire) != BOUND {
            return None;
        }
        // SAFETY: By the type invariants `bound` does not change any more.
        let bound = unsafe { &*self.bound.get() };
        // SAFETY: By the type invariants `bound` is initialised.
        Some(unsafe { bound.assume_init_ref() })
    }

    /// Stores the bound address. Returns `false` if the socket was bound before.
    #[inline]
    pub(super) fn bind(&self, bound: B) -> bool {
        let claimed = self.state.compare_exchange(FREE, BUSY, Relaxed, Relaxed);
        if claimed.is_err() {
            return false;
        }
        // SAFETY: By the type invariants this call has exclusive access to `bound`.
        unsafe { self.bound.get().write(MaybeUninit::new(bound)) };
        // INVARIANT: `bound` was initialised just now.
        self.state.store(BOUND, Release);
        true
    }
}

impl<B, S: AlwaysRefCounted> Drop for BindNode<B, S> {
    fn drop(&mut self) {
        if *self.state.get_mut() == BOUND {
            // SAFETY: By the type invariants `bound` is initialised, and its lifetime ends here.
            unsafe { self.bound.get_mut().assume_init_drop() };
        }
    }
}
