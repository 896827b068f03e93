// SPDX-License-Identifier: GPL-2.0

//! A relaxed load that is one instruction.
//!
//! [`Atomic::load`] calls a C helper, as `atomic_read()` is inline in C. What each message reads several
//! times is read here as C would.

use kernel::sync::atomic::{Atomic, AtomicType};

/// `READ_ONCE()` of an atomic.
pub(crate) trait Peek<T> {
    /// The same as `load(Relaxed)`. Any context.
    fn peek(&self) -> T;
}

impl<T: AtomicType> Peek<T> for Atomic<T> {
    #[inline(always)]
    fn peek(&self) -> T {
        // SAFETY: The pointer is valid and aligned. A volatile read of an aligned word is what `atomic_read()`
        // is, and all who write do so through the atomic.
        unsafe { self.as_ptr().read_volatile() }
    }
}
