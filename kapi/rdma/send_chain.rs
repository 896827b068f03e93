// SPDX-License-Identifier: GPL-2.0

//! Sends that are posted together, filled in right where the device reads them.

use super::{
    operation::{OperationItem, RejectedOp},
    qp::Qp,
    qp_handler::QpHandler,
    qp_ring::{SendItem, SIGNAL_EVERY},
    send_ring::{SendProgress, SendRing},
};
use crate::kapi::sync::{Item, SpinLockBhGuard};
use kernel::prelude::*;

/// Of so many sends in flight, one will report its completion at least.
pub(crate) const MAX_UNREPORTED: u32 = SIGNAL_EVERY;

/// Sends that are given to the device together, in order, when this is dropped or posted. Nobody
/// else can send meanwhile.
pub(crate) struct SendChain<'a, H: QpHandler> {
    ring: SpinLockBhGuard<'a, SendRing>,
    qp: &'a Qp<H>,
}

impl<H: QpHandler> Qp<H> {
    /// Begins a chain of sends. Any context but a hard interrupt.
    pub(crate) fn chain(&self) -> SendChain<'_, H> {
        SendChain {
            ring: self.send.lock(),
            qp: self,
        }
    }

    /// How far the device is with what was posted to be sent. Any context but a hard interrupt.
    pub(crate) fn send_progress(&self) -> SendProgress {
        self.send.lock().progress()
    }

    /// What is sent next reports its completion, and that of all before it. Any context but a hard interrupt.
    pub(crate) fn report_next(&self) {
        self.send.lock().report_next();
    }
}

impl<'a, H: QpHandler> SendChain<'a, H> {
    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a Qp<H> {
        self.qp
    }

    /// Number of sends that can still be added.
    pub(crate) fn room(&self) -> u32 {
        self.ring.space()
    }

    /// Whether nothing but reads may be added. The handler will hear of their end ([`QpHandler::sent`]).
    pub(crate) fn awaits_reads(&self) -> bool {
        self.ring.awaits_reads()
    }

    /// Number of sends that are not known to be done. The handler will hear of room
    /// ([`QpHandler::sent`]) if there are [`MAX_UNREPORTED`] or more.
    pub(crate) fn in_flight(&self) -> u32 {
        self.ring.in_flight()
    }

    /// Adds a send.
    ///
    /// Fails with ENOTCONN if the queue pair is closed, EAGAIN if there is no room, EINVAL if the
    /// send is empty, or its buffer too short or not mapped for the queue pair's protection domain.
    pub(crate) fn push(&mut self, item: SendItem) -> Result {
        let qp = self.qp;
        self.ring
            .stage(item, |address, len| qp.sync_for_device(address, len))
    }

    /// Posts what was added, and a work request of an operation behind it, or gives that back.
    pub(crate) fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp> {
        self.ring.operate(item)
    }

    /// Posts the chain. The error is the device's own; a part of the chain may be posted, and
    /// completes in the usual way, and the rest is dropped.
    pub(crate) fn post(mut self) -> Result {
        self.ring.submit()
    }
}

impl<H: QpHandler> Drop for SendChain<'_, H> {
    fn drop(&mut self) {
        // An error was reported by `post`; without it, by the completions that are flushed.
        let _ = self.ring.submit();
    }
}
