// SPDX-License-Identifier: GPL-2.0

//! Waiting, but not for ever.

use crate::bindings;
use kernel::{prelude::*, types::Opaque};

/// `struct completion` of which each signal ends one wait.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    raw: Opaque<bindings::completion>,
}

// SAFETY: A completion is for several threads.
unsafe impl Send for Completion {}
// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            raw <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is ours to fill.
                unsafe { bindings::rds_init_completion(slot) };
            }),
        })
    }

    /// Ends one wait. Any context.
    pub(crate) fn signal(&self) {
        // SAFETY: `raw` was initialised.
        unsafe { bindings::complete(self.raw.get()) };
    }

    /// Waits for a signal. Fails with ETIMEDOUT if none comes in time. Sleeps.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Result {
        // SAFETY: `raw` was initialised.
        match unsafe { bindings::rds_wait_for_completion(self.raw.get(), timeout_ms) } {
            true => Ok(()),
            false => Err(ETIMEDOUT),
        }
    }
}
