// SPDX-License-Identifier: GPL-2.0

//! Chains of sends that are posted together.
//!
//! Each send is written directly into the work request that the device reads. A chain holds the
//! lock of the send ring, so chains of one queue pair are posted one after another.

use super::{
    operation::{
        OperationItem,
        RejectedOp, //
    },
    qp::{
        Qp,
        QpHandler, //
    },
    qp_ring::SIGNAL_EVERY,
    send_item::SendItem,
    send_ring::{
        SendProgress,
        SendRing, //
    }, //
};
use crate::kapi::sync::{
    Item,
    SpinLockBhGuard, //
};
use kernel::prelude::*;

/// Maximum distance of signaled sends: of this many sends in flight at least one reports its
/// completion.
pub(crate) const MAX_UNSIGNALED: u32 = SIGNAL_EVERY;

/// A chain of sends. [`Self::post`] or the drop gives them to the device together, in order. Other
/// contexts cannot post sends meanwhile.
pub(crate) struct SendChain<'a, H: QpHandler> {
    ring: SpinLockBhGuard<'a, SendRing>,
    qp: &'a Qp<H>,
}

impl<H: QpHandler> Qp<H> {
    /// Begins a chain of sends.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts.
    pub(crate) fn chain(&self) -> SendChain<'_, H> {
        SendChain {
            ring: self.send.lock(),
            qp: self,
        }
    }

    /// Returns the progress of the device with the send queue.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts.
    pub(crate) fn send_progress(&self) -> SendProgress {
        self.send.lock().progress()
    }

    /// Requests a completion for the next send. It also reports all sends before it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts.
    pub(crate) fn report_next(&self) {
        self.send.lock().report_next();
    }
}

impl<'a, H: QpHandler> SendChain<'a, H> {
    pub(crate) fn qp(&self) -> &'a Qp<H> {
        self.qp
    }

    /// Returns the number of sends that can still be added.
    pub(crate) fn room(&self) -> u32 {
        self.ring.space()
    }

    /// Returns `true` if only reads may be added. Their completion calls [`QpHandler::sent`].
    pub(crate) fn awaits_reads(&self) -> bool {
        self.ring.awaits_reads()
    }

    /// Returns the number of sends that are not known to be completed. If there are
    /// [`MAX_UNSIGNALED`] or more, [`QpHandler::sent`] will be called.
    pub(crate) fn in_flight(&self) -> u32 {
        self.ring.in_flight()
    }

    /// Requests a completion for the next send, see [`Qp::report_next`].
    pub(crate) fn report_next(&mut self) {
        self.ring.report_next();
    }

    /// Adds a send.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed.
    /// - `EAGAIN` if there is no room.
    /// - `EINVAL` if the send is empty, or its buffer is too short or is not mapped for the queue
    ///   pair's protection domain.
    /// - Errors of the device, if the chain was full and part of it had to be posted.
    pub(crate) fn push(&mut self, item: SendItem) -> Result {
        let qp = self.qp;
        self.ring
            .stage(item, |address, len| qp.sync_for_device(address, len))
    }

    /// Posts the chain and then a work request of an operation. Returns the request if it was not
    /// posted.
    pub(crate) fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp> {
        self.ring.operate(item)
    }

    /// Posts the chain.
    ///
    /// # Errors
    ///
    /// Errors of the device. A part of the chain may be posted then, and completes normally. The
    /// rest is dropped.
    pub(crate) fn post(mut self) -> Result {
        self.ring.submit()
    }
}

impl<H: QpHandler> Drop for SendChain<'_, H> {
    fn drop(&mut self) {
        // Errors are reported by `post`. Without a call of `post` they show up as flushed
        // completions.
        let _ = self.ring.submit();
    }
}
