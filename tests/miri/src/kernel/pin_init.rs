// SPDX-License-Identifier: GPL-2.0

//! `pin_init`: in-place initialisation.

use core::{convert::Infallible, marker::PhantomData, ops::Deref};

/// An initialiser of a `T`.
///
/// # Safety
///
/// If [`Self::make`] succeeds, it must have written a `T` to the slot.
pub unsafe trait Init<T, E = Infallible>: Sized {
    /// # Safety
    ///
    /// `slot` must be memory for a `T`. It stays uninitialised if this fails.
    unsafe fn make(self, slot: *mut T) -> Result<(), E>;
}
pub use Init as PinInit;

// SAFETY: It writes a `T`.
unsafe impl<T, E> Init<T, E> for T {
    unsafe fn make(self, slot: *mut T) -> Result<(), E> {
        // SAFETY: The caller guarantees that `slot` is memory for a `T`.
        unsafe { slot.write(self) };
        Ok(())
    }
}

pub struct Closure<F, T>(F, PhantomData<fn(T)>);

// SAFETY: The caller of `init_from_closure` guarantees it.
unsafe impl<T, E, F: FnOnce(*mut T) -> Result<(), E>> Init<T, E> for Closure<F, T> {
    unsafe fn make(self, slot: *mut T) -> Result<(), E> {
        (self.0)(slot)
    }
}

/// # Safety
///
/// `f` must write a `T` to its argument, or fail.
pub unsafe fn init_from_closure<T, E>(f: impl FnOnce(*mut T) -> Result<(), E>) -> impl Init<T, E> {
    Closure(f, PhantomData)
}

/// An initialised field. Dropped if a later field fails.
pub struct Made<T>(*mut T);

impl<T> Made<T> {
    /// # Safety
    ///
    /// `place` must be memory for a `T` that no other code uses.
    pub unsafe fn new<E>(place: *mut T, init: impl Init<T, E>) -> Result<Self, E> {
        // SAFETY: The caller guarantees that `place` is memory for a `T`.
        unsafe { init.make(place) }?;
        Ok(Self(place))
    }
}

impl<T> Deref for Made<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has initialised it.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has initialised it, and the struct around it is not initialised.
        unsafe { self.0.drop_in_place() }
    }
}

/// Gives the place the type that the closure returns.
pub fn typed<T>(slot: *mut T, _: impl FnOnce() -> T) -> *mut T {
    slot
}

/// Stands for a value of any type, for [`typed`].
pub fn never<T>() -> T {
    unreachable!()
}

/// All kinds of initialisers: fields are given as `a`, `a: value`, or `a <- initialiser`.
#[macro_export]
macro_rules! init_fields {
    (@make $error:ty, $slot:ident [$($made:ident)*]) => {
        $(::core::mem::forget($made);)*
    };
    (@make $error:ty, $slot:ident [$($made:ident)*]
        $field:ident <- $init:expr $(, $($rest:tt)*)?
    ) => {
        // SAFETY: It is a field of memory that no other code uses.
        let $field = unsafe {
            $crate::pin_init::Made::new::<$error>(&raw mut (*$slot).$field, $init)?
        };
        $crate::init_fields!(@make $error, $slot [$($made)* $field] $($($rest)*)?);
    };
    (@make $error:ty, $slot:ident [$($made:ident)*]
        $field:ident : $value:expr $(, $($rest:tt)*)?
    ) => {
        let value = $value;
        // SAFETY: As above.
        let Ok($field) = (unsafe {
            let place = &raw mut (*$slot).$field;
            $crate::pin_init::Made::new::<::core::convert::Infallible>(place, value)
        });
        $crate::init_fields!(@make $error, $slot [$($made)* $field] $($($rest)*)?);
    };
    (@make $error:ty, $slot:ident [$($made:ident)*] $field:ident $(, $($rest:tt)*)?) => {
        $crate::init_fields!(@make $error, $slot [$($made)*] $field: $field $(, $($rest)*)?);
    };

    // Names all fields, so that the type is known.
    (@all $type:ident [$($field:ident)*]) => {
        || $type { $($field: $crate::pin_init::never(),)* }
    };
    (@all $type:ident [$($all:ident)*] $field:ident <- $init:expr $(, $($rest:tt)*)?) => {
        $crate::init_fields!(@all $type [$($all)* $field] $($($rest)*)?)
    };
    (@all $type:ident [$($all:ident)*] $field:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::init_fields!(@all $type [$($all)* $field] $($($rest)*)?)
    };
    (@all $type:ident [$($all:ident)*] $field:ident $(, $($rest:tt)*)?) => {
        $crate::init_fields!(@all $type [$($all)* $field] $($($rest)*)?)
    };

    ($error:ty, $type:ident { $($fields:tt)* }) => {{
        let make = move |slot: *mut _| -> ::core::result::Result<(), $error> {
            let all = $crate::init_fields!(@all $type [] $($fields)*);
            let slot = $crate::pin_init::typed(slot, all);
            $crate::init_fields!(@make $error, slot [] $($fields)*);
            Ok(())
        };
        // SAFETY: It initialises all fields.
        unsafe { $crate::pin_init::init_from_closure::<_, $error>(make) }
    }};
}

#[macro_export]
macro_rules! init {
    ($type:ident $fields:tt) => {
        $crate::init_fields!(::core::convert::Infallible, $type $fields)
    };
}

#[macro_export]
macro_rules! pin_init {
    ($type:ident $fields:tt) => {
        $crate::init_fields!(::core::convert::Infallible, $type $fields)
    };
}

#[macro_export]
macro_rules! try_pin_init {
    ($type:ident $fields:tt $(? $error:ty)?) => {
        $crate::init_fields!($crate::error::Error, $type $fields)
    };
}
