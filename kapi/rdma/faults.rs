// SPDX-License-Identifier: GPL-2.0

//! Fault injection through `/sys/kernel/debug/rds_faults`.
//!
//! It makes calls to devices fail with a given probability, or hides capabilities of devices: see
//! `bindings/helpers_fault.h`. It exists only in kernels with `CONFIG_FAULT_INJECTION_DEBUG_FS`.
//!
//! C header: [`include/linux/fault-inject.h`](srctree/include/linux/fault-inject.h)

use crate::bindings;

/// The debugfs files for fault injection. A module has one instance. Dropping it sleeps.
pub(crate) struct FaultInjection(());

impl FaultInjection {
    /// Creates the files. Without debugfs there are none, which is not an error.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Self {
        // SAFETY: The module creates one instance, so there is no directory yet.
        unsafe { bindings::rds_rust_faults_begin() };
        Self(())
    }
}

impl Drop for FaultInjection {
    fn drop(&mut self) {
        // SAFETY: `new` has created the directory.
        unsafe { bindings::rds_rust_faults_end() };
    }
}
