// SPDX-License-Identifier: GPL-2.0

//! Lists of bound sockets.
//!
//! A list is linked through its sockets, so inserting one allocates no memory.

use super::{
    Protocol,
    Sock, //
};
use core::ptr;
use kernel::sync::aref::ARef;

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
