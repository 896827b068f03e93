// SPDX-License-Identifier: GPL-2.0

//! Fault injection by `/sys/kernel/debug/rds_faults`: devices fail as often as that says, or lack what they have. See
//! `bindings/helpers_fault.h`.
//!
//! Only kernels with `CONFIG_FAULT_INJECTION_DEBUG_FS` have it.
//!
//! C header: [`include/linux/fault-inject.h`](srctree/include/linux/fault-inject.h)

use crate::bindings;

/// Whoever has this can inject faults. There is one in a module. Dropping it sleeps.
pub(crate) struct Faults(());

impl Faults {
    /// Without debugfs nothing can be injected, and nobody minds. May sleep.
    pub(crate) fn new() -> Self {
        // SAFETY: The module makes one of these, so there is no directory yet.
        unsafe { bindings::rds_faults_begin() };
        Self(())
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        // SAFETY: `new` has made what there is.
        unsafe { bindings::rds_faults_end() };
    }
}
