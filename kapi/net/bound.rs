// SPDX-License-Identifier: GPL-2.0

//! Bound addresses of sockets, and lists of bound sockets.
//!
//! A list is linked through its sockets, so inserting one allocates no memory.

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

/// The part of a socket that holds its bound address, and the link of its [`BoundList`].
///
/// It is equivalent to `SetOnce`, but makes no function calls, because each message reads it.
///
/// # Invariants
///
/// - `state` changes from [`FREE`] to [`BUSY`] to [`BOUND`] and never back.
/// - `bound` is initialised and does not change once `state` is [`BOUND`]. The call that set
///   [`BUSY`] has exclusive access to `bound` until then.
/// - `next` belongs to the [`BoundList`] that contains the socket. Outside a list it is `None` and
///   nothing refers to it.
/// - A socket enters a list at most once: by the call that set [`BUSY`].
pub(super) struct BindNode<T: Protocol> {
    state: AtomicU32,
    bound: UnsafeCell<MaybeUninit<T::Bound>>,
    next: UnsafeCell<Option<ARef<Sock<T>>>>,
}

impl<T: Protocol> BindNode<T> {
    pub(super) const fn new() -> Self {
        // INVARIANT: Nothing else has access to the new value.
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
        // SAFETY: By the type invariants `bound` does not change any more.
        let bound = unsafe { &*self.bound.get() };
        // SAFETY: By the type invariants `bound` is initialised.
        Some(unsafe { bound.assume_init_ref() })
    }

    /// Stores the bound address. Returns `false` if the socket was bound before.
    #[inline]
    fn bind(&self, bound: T::Bound) -> bool {
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

impl<T: Protocol> Drop for BindNode<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == BOUND {
            // SAFETY: By the type invariants `bound` is initialised, and its lifetime ends here.
            unsafe { self.bound.get_mut().assume_init_drop() };
        }
    }
}

/// A list of bound sockets, newest first. It holds a reference to each socket.
pub(crate) struct BoundList<T: Protocol> {
    first: Option<ARef<Sock<T>>>,
}

impl<T: Protocol> BoundList<T> {
    pub(crate) const fn new() -> Self {
        Self { first: None }
    }

    /// Binds a socket and adds it to the list.
    ///
    /// Returns `false` if the socket has been bound before. A socket is never unbound.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn bind(&mut self, sk: &Sock<T>, bound: T::Bound) -> bool {
        let place = sk.place();
        if !place.bind(bound) {
            return false;
        }
        // SAFETY: This call has bound the socket. So by the type invariants of `BindNode` nothing
        // else refers to `next`. The overwritten value is `None`.
        unsafe { place.next.get().write(self.first.take()) };
        self.first = Some(sk.hold());
        true
    }

    /// Removes a socket from the list, if it is there.
    ///
    /// The caller drops the result outside its locks, because it may be the last reference.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn remove(&mut self, sk: &Sock<T>) -> Option<ARef<Sock<T>>> {
        let mut at = &mut self.first;
        while !ptr::eq(&**at.as_ref()?, sk) {
            let next = at.as_ref()?.place().next.get();
            // SAFETY: The socket is on this list, which is borrowed exclusively.
            at = unsafe { &mut *next };
        }
        let found = at.take()?;
        // SAFETY: As above; the socket is removed from the list here.
        let next = unsafe { &mut *found.place().next.get() };
        *at = next.take();
        Some(found)
    }

    /// Iterates over the sockets, newest first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sock<T>> {
        let mut at = &self.first;
        core::iter::from_fn(move || {
            let here = at.as_ref()?;
            // SAFETY: The socket is on this list, which cannot change while it is borrowed.
            at = unsafe { &*here.place().next.get() };
            Some(&**here)
        })
    }
}

impl<T: Protocol> Drop for BoundList<T> {
    fn drop(&mut self) {
        // Sockets are released one by one: dropping the first would recurse through all links.
        while let Some(first) = self.first.take() {
            // SAFETY: The socket was on this list, which is borrowed exclusively.
            let next = unsafe { &mut *first.place().next.get() };
            self.first = next.take();
        }
    }
}
