// SPDX-License-Identifier: GPL-2.0

//! Per-CPU counters.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` 64-bit counters for each CPU.
///
/// # Invariants
///
/// `counters` points to `N` per-CPU counters that are freed when `self` is dropped.
pub(crate) struct PerCpuCounters<const N: usize> {
    counters: NonNull<u64>,
}

// SAFETY: Per-CPU counters may be added to and read from any context on any CPU.
unsafe impl<const N: usize> Send for PerCpuCounters<N> {}
// SAFETY: As above.
unsafe impl<const N: usize> Sync for PerCpuCounters<N> {}

impl<const N: usize> PerCpuCounters<N> {
    /// Allocates the counters with value 0.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let counters = unsafe { bindings::rds_rust_alloc_percpu_u64(N) };
        // INVARIANT: The allocation has room for `N` counters.
        Ok(Self {
            counters: NonNull::new(counters).ok_or(ENOMEM)?,
        })
    }

    /// Returns the per-CPU pointer of a counter, or `None` if `index` is out of range.
    fn counter(&self, index: usize) -> Option<*mut u64> {
        (index < N).then(|| self.counters.as_ptr().wrapping_add(index))
    }

    /// Adds to a counter of this CPU. An index out of range is ignored.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn add(&self, index: usize, value: u64) {
        if let Some(counter) = self.counter(index) {
            // SAFETY: By the type invariants this is one of the allocated per-CPU counters.
            unsafe { bindings::rds_rust_this_cpu_add(counter, value) }
        }
    }

    /// Adds 1 to the counter `events` and `value` to the counter `amount`, in one C call. Does
    /// nothing if an index is out of range.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn count(&self, events: usize, amount: usize, value: u64) {
        if let (Some(events), Some(amount)) = (self.counter(events), self.counter(amount)) {
            // SAFETY: By the type invariants these are two of the allocated per-CPU counters.
            unsafe { bindings::rds_rust_this_cpu_count(events, amount, value) }
        }
    }

    /// Returns the sum of a counter over all CPUs, or 0 if the index is out of range.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn sum(&self, index: usize) -> u64 {
        self.counter(index).map_or(0, |counter| {
            // SAFETY: By the type invariants this is one of the allocated per-CPU counters.
            unsafe { bindings::rds_rust_sum_percpu(counter) }
        })
    }
}

impl<const N: usize> Drop for PerCpuCounters<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the counters, and its lifetime ends here.
        unsafe { bindings::rds_rust_free_percpu_u64(self.counters.as_ptr()) }
    }
}
