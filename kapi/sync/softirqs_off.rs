// SPDX-License-Identifier: GPL-2.0

//! Section with softirqs disabled.
//!
//! C header: [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use crate::bindings;
use kernel::types::NotThreadSafe;

/// Section in which softirqs are disabled on the local CPU, until it is dropped. The task is not
/// preempted meanwhile, except by a real-time kernel. Disabling is counted, so sections and guards
/// of [`SpinLockBh`](super::SpinLockBh) may be dropped in any order.
///
/// # Invariants
///
/// The task that owns the section has disabled softirqs for it.
pub(crate) struct SoftirqsOff(NotThreadSafe);

impl SoftirqsOff {
    /// Begins a section.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn new() -> Self {
        // SAFETY: Softirqs may be disabled anywhere; the drop enables them again.
        unsafe { bindings::rds_rust_local_bh_disable() };
        // INVARIANT: Softirqs were just disabled. The type is not `Send`, so this task drops it.
        Self(NotThreadSafe)
    }
}

impl Drop for SoftirqsOff {
    fn drop(&mut self) {
        // SAFETY: By the type invariants this task has disabled softirqs for `self`.
        unsafe { bindings::rds_rust_local_bh_enable() };
    }
}
