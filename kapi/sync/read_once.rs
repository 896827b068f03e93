// SPDX-License-Identifier: GPL-2.0

//! Relaxed atomic load in one instruction.
//!
//! [`Atomic::load`] calls a C helper, because `atomic_read()` is an inline function in C. This
//! trait avoids the call for values that are read several times per message.

use kernel::sync::atomic::{
    Atomic,
    AtomicType, //
};

/// `READ_ONCE()` of an atomic.
pub(crate) trait ReadOnce<T> {
    /// Loads the value, as `load(Relaxed)` does.
    ///
    /// # Context
    ///
    /// Any context.
    fn read_once(&self) -> T;
}

impl<T: AtomicType> ReadOnce<T> for Atomic<T> {
    #[inline(always)]
    fn read_once(&self) -> T {
        // SAFETY: The pointer is valid and aligned. `atomic_read()` is a volatile read of an
        // aligned word, too. All writers go through the atomic.
        unsafe { self.as_ptr().read_volatile() }
    }
}
