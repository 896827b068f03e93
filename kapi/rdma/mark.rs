// SPDX-License-Identifier: GPL-2.0

//! Waiting for one work request.

use super::wc_status::WcStatus;
use crate::{bindings, kapi::sync::Completion};
use core::ptr;
use kernel::{
    prelude::*,
    sync::atomic::{ordering, Atomic},
};

/// What the completion of a work request names, so that someone can wait for it.
///
/// `cqe` comes first, as the completion has its address.
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

    /// # Safety
    ///
    /// Only as `done` of the `cqe` of a live `Self`, with a valid completion of it.
    unsafe extern "C" fn done(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The caller gives a valid completion.
        let wc = unsafe { &*wc };
        // SAFETY: The work request named a completion entry.
        let cqe = unsafe { wc.__bindgen_anon_1.wr_cqe };
        // SAFETY: It is that of a live `Self`, whose first field it is.
        let this = unsafe { &*cqe.cast::<Self>() };
        this.status.store(wc.status, ordering::Relaxed);
        this.done.signal();
    }

    /// Waits for the completion, which may come once for each time that this is called, and gives its status. Fails
    /// with ETIMEDOUT if it does not come in time. Sleeps.
    pub(super) fn wait(&self, timeout_ms: u32) -> Result<WcStatus> {
        self.done.wait(timeout_ms)?;
        Ok(WcStatus(self.status.load(ordering::Relaxed)))
    }

    /// For a work request, whose completion must come before `self` goes, or never. It is the address of the first
    /// field, from which `done` comes back.
    pub(super) fn cqe(&self) -> *mut bindings::ib_cqe {
        ptr::from_ref(self).cast_mut().cast()
    }
}
