// SPDX-License-Identifier: GPL-2.0

//! Sockets that belong to no program, for the KUnit suites.

use super::sock::{
    Protocol,
    Sock, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::prelude::*;

/// A socket of this module. Dropping it closes the socket, and sleeps.
///
/// # Invariants
///
/// The pointer is to a socket of protocol `T`, which `self` owns.
pub(crate) struct FakeSocket<T: Protocol>(NonNull<bindings::socket>, PhantomData<Sock<T>>);

impl<T: Protocol> FakeSocket<T> {
    /// Creates a socket that is not bound.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory, or the family is not registered.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let sock = unsafe { bindings::rds_rust_fake_socket() };
        // INVARIANT: The socket is new. The module registers one family, whose protocol is the only
        // implementation of `Protocol`.
        let sock = NonNull::new(sock).ok_or(ENOMEM)?;
        Ok(Self(sock, PhantomData))
    }
}

impl<T: Protocol> Deref for FakeSocket<T> {
    type Target = Sock<T>;

    fn deref(&self) -> &Sock<T> {
        // SAFETY: The socket is open by the type invariants.
        let sk = unsafe { bindings::rds_rust_fake_sk(self.0.as_ptr()) };
        // SAFETY: By the type invariants it is of this protocol, and `self` keeps it alive.
        unsafe { Sock::from_raw(sk) }
    }
}

impl<T: Protocol> Drop for FakeSocket<T> {
    fn drop(&mut self) {
        // SAFETY: The socket is open by the type invariants, and is not used any more.
        unsafe { bindings::rds_rust_fake_close(self.0.as_ptr()) };
    }
}
