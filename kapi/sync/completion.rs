// SPDX-License-Identifier: GPL-2.0

//! Completions with a timeout.

use crate::bindings;
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// A `struct completion`. Each signal ends one wait.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    raw: Opaque<bindings::completion>,
}

// SAFETY: A completion may be used from several threads at once.
unsafe impl Send for Completion {}
// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            raw <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is uninitialised and may be written.
                unsafe { bindings::rds_rust_init_completion(slot) };
            }),
        })
    }

    /// Ends one wait, now or in future.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn signal(&self) {
        // SAFETY: `raw` was initialised.
        unsafe { bindings::complete(self.raw.get()) };
    }

    /// Waits for a signal.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if there is no signal within `timeout_ms`.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Result {
        // SAFETY: `raw` was initialised.
        match unsafe { bindings::rds_rust_wait_for_completion(self.raw.get(), timeout_ms) } {
            true => Ok(()),
            false => Err(ETIMEDOUT),
        }
    }
}
