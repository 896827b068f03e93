// SPDX-License-Identifier: GPL-2.0

//! Where sockets are bound, and lists of bound sockets.
//!
//! A list links its sockets through themselves, so to put one there takes no memory.

use super::{Protocol, Sock};
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use kernel::sync::aref::ARef;

/// Values of [`BindNode::state`].
const FREE: u32 = 0;
const BUSY: u32 = 1;
const BOUND: u32 = 2;

/// The part of a socket that says where it is bound. It works as `SetOnce` does, but without calls: every
/// message asks for it.
///
/// # Invariants
///
/// `state` goes from [`FREE`] by [`BUSY`] to [`BOUND`], and never back. `bound` is initialised and does
/// not change once it is [`BOUND`]; who set it to [`BUSY`] has `bound` to itself until then.
///
/// `next` is `None` and nothing refers to it, unless the socket is in a [`BoundList`]. Then it belongs
/// to that list. A socket gets into a list once in its life: by the call that set [`BUSY`].
pub(super) struct BindNode<T: Protocol> {
    state: AtomicU32,
    bound: UnsafeCell<MaybeUninit<T::Bound>>,
    next: UnsafeCell<Option<ARef<Sock<T>>>>,
}

impl<T: Protocol> BindNode<T> {
    pub(super) const fn new() -> Self {
        // INVARIANT: Nobody has seen it yet.
        Self {
            state: AtomicU32::new(FREE),
            bound: UnsafeCell::new(MaybeUninit::uninit()),
            next: UnsafeCell::new(None),
        }
    }

    #[inline]
    pub(super) fn bound(&self) -> Option<&T::Bound> {
        if self.state.load(Acquire) != BOUND {
            return None;
        }
        // SAFETY: By the type invariants it does not change any more.
        let bound = unsafe { &*self.bound.get() };
        // SAFETY: By the type invariants it is initialised.
        Some(unsafe { bound.assume_init_ref() })
    }

    /// Returns false if that was done before.
    #[inline]
    fn bind(&self, bound: T::Bound) -> bool {
        let claimed = self.state.compare_exchange(FREE, BUSY, Relaxed, Relaxed);
        if claimed.is_err() {
            return false;
        }
        // SAFETY: By the type invariants we have it to ourselves.
        unsafe { self.bound.get().write(MaybeUninit::new(bound)) };
        // INVARIANT: Initialised just now.
        self.state.store(BOUND, Release);
        true
    }
}

impl<T: Protocol> Drop for BindNode<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == BOUND {
            // SAFETY: By the type invariants it is initialised, and it ends here.
            unsafe { self.bound.get_mut().assume_init_drop() };
        }
    }
}

/// Sockets that are bound, the newest first. It holds a reference to each of them.
pub(crate) struct BoundList<T: Protocol> {
    first: Option<ARef<Sock<T>>>,
}

impl<T: Protocol> BoundList<T> {
    pub(crate) const fn new() -> Self {
        Self { first: None }
    }

    /// Binds a socket and puts it on the list. Returns false if it has been bound before: that is for
    /// life. Any context.
    #[inline]
    pub(crate) fn bind(&mut self, sk: &Sock<T>, bound: T::Bound) -> bool {
        let place = sk.place();
        if !place.bind(bound) {
            return false;
        }
        // SAFETY: By the type invariants of `BindNode` nothing else refers to `next`, as it was this
        // call that bound the socket. What is overwritten is `None`.
        unsafe { place.next.get().write(self.first.take()) };
        self.first = Some(sk.hold());
        true
    }

    /// Takes a socket off the list, if it is there. The caller drops the result outside its locks, as
    /// it may be the last reference. Any context.
    pub(crate) fn remove(&mut self, sk: &Sock<T>) -> Option<ARef<Sock<T>>> {
        let mut at = &mut self.first;
        while !ptr::eq(&**at.as_ref()?, sk) {
            let next = at.as_ref()?.place().next.get();
            // SAFETY: The socket is on this list, which is borrowed exclusively.
            at = unsafe { &mut *next };
        }
        let found = at.take()?;
        // SAFETY: As above; the socket leaves the list here.
        let next = unsafe { &mut *found.place().next.get() };
        *at = next.take();
        Some(found)
    }

    /// The sockets, newest first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sock<T>> {
        let mut at = &self.first;
        core::iter::from_fn(move || {
            let here = at.as_ref()?;
            // SAFETY: The socket is on this list, which nobody changes while it is borrowed.
            at = unsafe { &*here.place().next.get() };
            Some(&**here)
        })
    }
}

impl<T: Protocol> Drop for BoundList<T> {
    fn drop(&mut self) {
        // One by one: dropping the first would recurse through all the links.
        while let Some(first) = self.first.take() {
            // SAFETY: The socket was on this list, which is borrowed exclusively.
            let next = unsafe { &mut *first.place().next.get() };
            self.first = next.take();
        }
    }
}
