// SPDX-License-Identifier: GPL-2.0

//! Interfaces of the `kernel` crate that differ between the supported kernels.
//!
//! `rds_linux_7_2` is set for Linux 7.2. A function is removed when all supported kernels agree.

use pin_init::PinInit;

/// Initialises the memory at `slot`.
///
/// # Safety
///
/// `slot` points to uninitialised memory for a `T`, which does not move until it is dropped.
#[inline]
pub(crate) unsafe fn init_at<T>(slot: *mut T, init: impl PinInit<T>) {
    #[cfg(rds_linux_7_2)]
    {
        // SAFETY: By the caller's guarantee.
        let Ok(()) = unsafe { init.__pinned_init(slot) };
    }
    #[cfg(not(rds_linux_7_2))]
    // SAFETY: By the caller's guarantee.
    unsafe {
        pin_init::raw_init(slot, init)
    };
}
