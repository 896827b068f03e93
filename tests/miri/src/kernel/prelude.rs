// SPDX-License-Identifier: GPL-2.0

//! `kernel::prelude`.

pub use crate::{
    alloc::{flags::*, KBox, KVVec, KVec},
    error::{code::*, Error, Result},
    pin_init::{Init, PinInit},
};
pub use crate::{init, pin_init, try_pin_init};
pub use core::{
    ffi::{c_char, c_int, c_uint, c_void, CStr},
    pin::Pin,
};
pub use kernel_macros::{kunit_tests, pin_data};

/// Additional methods of the kernel's `CStr`.
pub trait CStrExt {
    /// # Safety
    ///
    /// `ptr` must be a string with a terminating NUL that lives for `'a`.
    unsafe fn from_char_ptr<'a>(ptr: *const c_char) -> &'a CStr;
}

impl CStrExt for CStr {
    unsafe fn from_char_ptr<'a>(ptr: *const c_char) -> &'a CStr {
        // SAFETY: The caller guarantees that it is such a string.
        unsafe { CStr::from_ptr(ptr) }
    }
}
