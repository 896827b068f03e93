// SPDX-License-Identifier: GPL-2.0

//! Drains a queue pair before it is destroyed: waits until its last completions are polled.
//!
//! It works as `ib_drain_qp()`, except that the wait has a timeout. soft-RoCE, for example, never
//! flushes the receives of a queue pair if an allocation failed while the CM made it ready. The
//! flush only serves to receive the peer's last messages, so it is skipped if a device takes too
//! long.
//!
//! Drivers with their own drain functions (mlx4, mlx5, hns) also wait without a limit, unless the
//! device is known to be dead. So those functions are not used. A dead device refuses the posts,
//! and the queue pair is destroyed without a flush.

use super::mark::Mark;
use crate::bindings;
use core::ptr;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Timeout for the flush of one queue. A flush normally takes less than 1 ms.
const TIMEOUT_MS: u32 = 5_000;

/// One completion entry for each queue.
#[pin_data]
pub(super) struct Drain {
    #[pin]
    send: Mark,
    #[pin]
    recv: Mark,
}

impl Drain {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            send <- Mark::new(),
            recv <- Mark::new(),
        })
    }

    /// Returns the entries that the completions will name.
    pub(super) fn entries(&self) -> [DrainEntry; 2] {
        [DrainEntry(self.send.cqe()), DrainEntry(self.recv.cqe())]
    }

    /// Moves `qp` to the error state, and waits until all posted work requests are completed and
    /// polled.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if the flush of a queue takes too long.
    /// - Errors of the device.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `qp` must be alive, with room for a work request in each queue, and nothing else may post to
    /// it any more. Before `self` is dropped, the completion queue of `qp` must be destroyed and
    /// must not be polled any more.
    pub(super) unsafe fn wait(self: Pin<&Self>, qp: *mut bindings::ib_qp) -> Result {
        // SAFETY: By the caller's guarantee `qp` is alive.
        to_result(unsafe { bindings::rds_rust_ib_qp_to_error(qp) })?;
        let mut send = bindings::ib_send_wr {
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            // CAST: flags are small.
            send_flags: bindings::ib_send_flags_IB_SEND_SIGNALED as c_int,
            ..Default::default()
        };
        send.__bindgen_anon_1.wr_cqe = self.send.cqe();
        let mut refused = ptr::null();
        // SAFETY: By the caller's guarantee `qp` is alive and has room. The entry outlives the
        // completion.
        to_result(unsafe { bindings::rds_rust_ib_post_last_send(qp, &send, &mut refused) })?;
        self.send.wait(TIMEOUT_MS)?;
        let mut recv = bindings::ib_recv_wr::default();
        recv.__bindgen_anon_1.wr_cqe = self.recv.cqe();
        let mut refused = ptr::null();
        // SAFETY: As above.
        to_result(unsafe { bindings::rds_rust_ib_post_recv(qp, &recv, &mut refused) })?;
        self.recv.wait(TIMEOUT_MS)?;
        Ok(())
    }
}

/// A completion entry whose completion may arrive, or none.
#[derive(Clone, Copy)]
pub(super) struct DrainEntry(*mut bindings::ib_cqe);

// SAFETY: Only `forward` uses the entries. Its caller guarantees that they are live.
unsafe impl Send for DrainEntry {}

impl DrainEntry {
    pub(super) const NONE: Self = Self(ptr::null_mut());

    /// Calls the handler of a completion that names one of `entries`. Other addresses from the
    /// device are ignored and never dereferenced.
    ///
    /// # Safety
    ///
    /// Each of `entries` must be live, or [`Self::NONE`].
    pub(super) unsafe fn forward(
        entries: &[Self],
        cq: *mut bindings::ib_cq,
        wc: &mut bindings::ib_wc,
    ) {
        // SAFETY: A work request without a slot number was posted with a completion entry, so this
        // is the union member that was written.
        let named = unsafe { wc.__bindgen_anon_1.wr_cqe };
        if !entries.iter().any(|entry| ptr::eq(entry.0, named)) {
            return;
        }
        // SAFETY: The entry is one of `entries`, which are live by the caller's guarantee.
        let done = unsafe { named.as_ref() }.and_then(|cqe| cqe.done);
        if let Some(done) = done {
            // SAFETY: The RDMA core calls completion handlers this way; `wc` is valid.
            unsafe { done(cq, wc) };
        }
    }
}
