// SPDX-License-Identifier: GPL-2.0

//! Synchronous wait for the completion of one work request.

use super::wc_status::WcStatus;
use crate::{
    bindings,
    kapi::sync::Completion, //
};
use core::ptr;
use kernel::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

/// A completion entry (`ib_cqe`) for a work request, with a wait for its completion.
///
/// `cqe` is the first field, because the completion carries its address.
#[pin_data]
#[repr(C)]
pub(super) struct Mark {
    cqe: bindings::ib_cqe,
    #[pin]
    done: Completion,
    status: Atomic<u32>,
}

impl Mark {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cqe: bindings::ib_cqe {
                done: Some(Self::done),
            },
            done <- Completion::new(),
            status: Atomic::new(0),
        })
    }

    /// Completion handler: stores the status and wakes the waiter.
    ///
    /// # Safety
    ///
    /// Only as `done` of the `cqe` of a live `Self`, with a valid completion of it.
    unsafe extern "C" fn done(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The caller passes a valid completion.
        let wc = unsafe { &*wc };
        // SAFETY: The work request has a completion entry.
        let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
        // SAFETY: The entry is the first field of a live `Self`.
        let this = unsafe { &*cqe.cast::<Self>() };
        this.status.store(wc.status, ordering::Relaxed);
        this.done.signal();
    }

    /// Waits for the completion and returns its status. Each call consumes one completion.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if there is no completion within `timeout_ms`.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn wait(&self, timeout_ms: u32) -> Result<WcStatus> {
        self.done.wait(timeout_ms)?;
        Ok(WcStatus(self.status.load(ordering::Relaxed)))
    }

    /// Returns the completion entry for a work request.
    ///
    /// It is the address of `self`, which `done` recovers. The completion must arrive before `self`
    /// is dropped, or never.
    pub(super) fn cqe(&self) -> *mut bindings::ib_cqe {
        ptr::from_ref(self).cast_mut().cast()
    }
}
