// SPDX-License-Identifier: GPL-2.0

//! The end of what is posted to a queue pair: the last completions before it is destroyed.
//!
//! As `ib_drain_qp()`, but for its waiting without bound: soft-RoCE, for one, never flushes the
//! receives of a queue pair for which it found no memory when the connection manager made it ready.
//! Nothing needs the flush but a peer's last messages, so a device that takes long goes without it.
//! Drivers that drain by themselves (mlx4, mlx5, hns) wait without bound, too, unless the device is known to be
//! dead, so they are not asked. A dead device refuses what is posted, and the queue pair is destroyed as it is.

use super::mark::Mark;
use crate::bindings;
use core::ptr;
use kernel::{error::to_result, prelude::*};

/// How long a device may take to flush one of the queues, in milliseconds. A flush takes less than one.
const PATIENCE_MS: u32 = 5_000;

/// A mark for each queue.
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

    /// What the completions will name.
    pub(super) fn entries(&self) -> [Entry; 2] {
        [Entry(self.send.cqe()), Entry(self.recv.cqe())]
    }

    /// Puts `qp` into the error state and waits until all that was posted has been completed and
    /// polled. Fails with ETIMEDOUT if that takes too long, and as the device does. Process context;
    /// sleeps.
    ///
    /// # Safety
    ///
    /// `qp` must be alive, with room for a work request in each queue, and nobody may post to it any
    /// more. Its completion queue must be destroyed, and not be polled any more, before `self` goes.
    pub(super) unsafe fn wait(self: Pin<&Self>, qp: *mut bindings::ib_qp) -> Result {
        // SAFETY: The caller says that it is alive.
        to_result(unsafe { bindings::rds_ib_qp_to_error(qp) })?;
        let mut send = bindings::ib_send_wr {
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            // CAST: flags are small.
            send_flags: bindings::ib_send_flags_IB_SEND_SIGNALED as c_int,
            ..Default::default()
        };
        send.__bindgen_anon_1.wr_cqe = self.send.cqe();
        let mut refused = ptr::null();
        // SAFETY: As the caller says; the completion entry outlives the completion.
        to_result(unsafe { bindings::rds_ib_post_last_send(qp, &send, &mut refused) })?;
        self.send.wait(PATIENCE_MS)?;
        let mut recv = bindings::ib_recv_wr::default();
        recv.__bindgen_anon_1.wr_cqe = self.recv.cqe();
        let mut refused = ptr::null();
        // SAFETY: As above.
        to_result(unsafe { bindings::rds_ib_post_recv(qp, &recv, &mut refused) })?;
        self.recv.wait(PATIENCE_MS)?;
        Ok(())
    }
}

/// A completion entry whose completion may come, or none.
#[derive(Clone, Copy)]
pub(super) struct Entry(*mut bindings::ib_cqe);

// SAFETY: The entries are used by `forward` alone, whose caller says that they live.
unsafe impl Send for Entry {}

impl Entry {
    pub(super) const NONE: Self = Self(ptr::null_mut());

    /// Hands a completion that is not for a ring to that of `entries` which it names, if it does. No other address
    /// that a device may tell is followed.
    ///
    /// # Safety
    ///
    /// All of `entries` must be live, or none.
    pub(super) unsafe fn forward(
        entries: &[Self],
        cq: *mut bindings::ib_cq,
        wc: &mut bindings::ib_wc,
    ) {
        // SAFETY: What names no slot was not posted for a ring, so that this is the member that was written.
        let named = unsafe { wc.__bindgen_anon_1.wr_cqe };
        if !entries.iter().any(|entry| ptr::eq(entry.0, named)) {
            return;
        }
        // SAFETY: It is one of `entries`, which the caller says are live.
        let done = unsafe { named.as_ref() }.and_then(|cqe| cqe.done);
        if let Some(done) = done {
            // SAFETY: This is how completions are delivered; `wc` is valid.
            unsafe { done(cq, wc) };
        }
    }
}
