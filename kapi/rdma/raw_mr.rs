// SPDX-License-Identifier: GPL-2.0

//! MR objects of a device, as the device and its protection domain see them.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Memory that is mapped for a device as long as this exists. Dropping it sleeps.
pub(super) trait MappedMemory: Send + Sync {}

/// An MR object of a protection domain, with the memory that it gives access to.
///
/// # Invariants
///
/// `raw` is `None`, or an MR of that domain that `self` owns.
pub(super) struct RawMr {
    pub(super) raw: Option<NonNull<bindings::ib_mr>>,
    /// Memory that the device may access through the MR.
    pub(super) mapping: Option<Arc<dyn MappedMemory>>,
}

// SAFETY: An MR may be deregistered from any thread.
unsafe impl Send for RawMr {}

impl RawMr {
    pub(super) const NONE: Self = Self {
        raw: None,
        mapping: None,
    };

    /// Deregisters the MR, if there is one.
    ///
    /// # Errors
    ///
    /// - Errors of the device. Nothing changes then.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn end(&mut self) -> Result {
        let Some(raw) = self.raw else {
            return Ok(());
        };
        // SAFETY: By the type invariants `self` owns the MR.
        to_result(unsafe { bindings::rds_rust_ib_dereg_mr(raw.as_ptr()) })?;
        // INVARIANT: The MR is deregistered.
        self.raw = None;
        Ok(())
    }
}
