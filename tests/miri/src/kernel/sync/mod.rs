// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync`.

use crate::{
    alloc::{AllocError, Flags},
    error::{Error, Result},
    pin_init::Init,
};
use core::{
    marker::Unsize,
    ops::{CoerceUnsized, Deref},
};
use std::sync;

pub mod atomic;

/// `Arc` of the host, with the kernel's names.
pub struct Arc<T: ?Sized>(sync::Arc<T>);

impl<T: ?Sized + Unsize<U>, U: ?Sized> CoerceUnsized<Arc<U>> for Arc<T> {}

impl<T> Arc<T> {
    pub fn new(value: T, _: Flags) -> Result<Self, AllocError> {
        Ok(Self(sync::Arc::new(value)))
    }

    pub fn pin_init<E>(init: impl Init<T, E>, _: Flags) -> Result<Self>
    where
        Error: From<E>,
    {
        let mut place = sync::Arc::new_uninit();
        let slot = sync::Arc::get_mut(&mut place).unwrap().as_mut_ptr();
        // SAFETY: It is memory for a `T`, and no other code has it.
        unsafe { init.make(slot) }?;
        // SAFETY: Just initialised.
        Ok(Self(unsafe { place.assume_init() }))
    }
}

impl<T: ?Sized> Arc<T> {
    pub fn as_ptr(this: &Self) -> *const T {
        sync::Arc::as_ptr(&this.0)
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        sync::Arc::ptr_eq(&this.0, &other.0)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// `kernel::sync::aref`.
pub mod aref {
    use core::{ops::Deref, ptr::NonNull};

    /// # Safety
    ///
    /// As for the kernel's trait of this name.
    pub unsafe trait AlwaysRefCounted {
        fn inc_ref(&self);

        /// # Safety
        ///
        /// The caller passes ownership of a reference.
        unsafe fn dec_ref(this: NonNull<Self>);
    }

    pub struct ARef<T: AlwaysRefCounted>(NonNull<T>);

    // SAFETY: As for a reference.
    unsafe impl<T: AlwaysRefCounted + Sync + Send> Send for ARef<T> {}
    // SAFETY: As above.
    unsafe impl<T: AlwaysRefCounted + Sync + Send> Sync for ARef<T> {}

    impl<T: AlwaysRefCounted> From<&T> for ARef<T> {
        fn from(it: &T) -> Self {
            it.inc_ref();
            Self(it.into())
        }
    }

    impl<T: AlwaysRefCounted> Clone for ARef<T> {
        fn clone(&self) -> Self {
            (&**self).into()
        }
    }

    impl<T: AlwaysRefCounted> Deref for ARef<T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: This holds a reference.
            unsafe { self.0.as_ref() }
        }
    }

    impl<T: AlwaysRefCounted> Drop for ARef<T> {
        fn drop(&mut self) {
            // SAFETY: This holds a reference, and ends here.
            unsafe { T::dec_ref(self.0) }
        }
    }
}

/// `refcount_t`.
pub struct Refcount(atomic::Atomic<i32>);

impl Refcount {
    pub fn new(count: i32) -> Self {
        Self(atomic::Atomic::new(count))
    }

    pub fn as_atomic(&self) -> &atomic::Atomic<i32> {
        &self.0
    }

    pub fn set(&self, count: i32) {
        self.0.store(count, atomic::Relaxed);
    }

    pub fn inc(&self) {
        assert!(self.0.fetch_add(1, atomic::Relaxed) > 0);
    }

    pub fn dec_and_test(&self) -> bool {
        let before = self.0.fetch_sub(1, atomic::Release);
        assert!(before > 0);
        // Orders all earlier accesses through other references before those of the last owner.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        before == 1
    }
}
