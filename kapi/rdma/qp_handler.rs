// SPDX-License-Identifier: GPL-2.0

//! Interface through which the user of a queue pair handles completions and events.

use super::{
    completion::Received,
    failure::{
        Failure,
        Queue, //
    },
    operation::OperationItem,
    qp::Qp, //
};
use crate::bindings;
use kernel::prelude::*;

/// An asynchronous event of a queue pair, or of its completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpEvent {
    /// The queue pair is unusable. The value is from `enum ib_event_type`.
    Fatal(i32),
    /// Another event. The value is from `enum ib_event_type`.
    Other(u32),
}

impl QpEvent {
    pub(super) fn new(event: u32) -> Self {
        match event {
            bindings::ib_event_type_IB_EVENT_QP_FATAL
            | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
            // Completions are lost, and there may be no other event of the queue pair.
            | bindings::ib_event_type_IB_EVENT_CQ_ERR
            // CAST: event numbers are small.
            | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR => Self::Fatal(event as i32),
            _ => Self::Other(event),
        }
    }
}

/// Handler of the completions and events of a queue pair.
///
/// # Context
///
/// Methods without this section are called in softirq context, one at a time for each queue pair.
pub(crate) trait QpHandler: Sized + Send + Sync + 'static {
    /// State that only the poller uses, so it needs no lock of its own.
    type Poll: Send + Unpin;

    /// Handles a received message. Returns the number of its parts, on which the peer decides.
    ///
    /// A run of completions ends after [`MOST_PARTS`](super::poller::MOST_PARTS) parts, or a few
    /// more.
    ///
    /// # Errors
    ///
    /// Returns a message that cannot be handled now. It is passed again after [`Qp::resume`],
    /// before any other. Nothing is polled meanwhile.
    fn received(
        &self,
        qp: &Qp<Self>,
        poll: &mut Self::Poll,
        message: Received,
    ) -> Result<u32, Received>;

    /// Notes a completed work request of an operation, before the operation does.
    fn operated(&self, _item: &OperationItem) {}

    /// Handles completed sends. Their slots are free, and `reports` of them have reported their
    /// completion.
    fn sent(&self, qp: &Qp<Self>, reports: usize);

    /// Handles a failed or flushed work request.
    ///
    /// It is called for the first one in each queue, and for later ones that have failed and are
    /// not only flushed. The buffers are freed.
    fn failed(&self, qp: &Qp<Self>, failure: Failure);

    /// Handles a receive that was used up, but contains no message. Its buffer is freed.
    ///
    /// `opcode` is the opcode of the completion. The peer has used a write with immediate data, or
    /// a send that invalidates an rkey. The buffer may not contain any of that data.
    fn unexpected_opcode(&self, opcode: u32);

    /// Handles a completion that is not the next one of its queue, but was reported twice, or after
    /// others that are missing. It is called for the first one. Flushed work requests may
    /// complete in any order.
    ///
    /// Its buffer is not freed before the queue pair is closed. A message that it reports is
    /// dropped, because it may not overtake the missing ones.
    fn out_of_order(&self, queue: Queue);

    /// Handles the failure of a flush: the device refused it or took too long when the queue pair
    /// was closed. The queue pair is destroyed in any case.
    ///
    /// # Context
    ///
    /// Process context.
    fn not_flushed(&self, error: Error);

    /// Handles the end of a run of at most 64 completions. The next run may follow at once.
    fn polled(&self, qp: &Qp<Self>, poll: &mut Self::Poll);

    /// Handles a notification that there are completions. They are polled afterwards.
    ///
    /// # Context
    ///
    /// Any context, including hard interrupt. It must not take locks.
    fn notified(&self);

    /// Handles an asynchronous event.
    ///
    /// # Context
    ///
    /// Any context, including hard interrupt. It must not take locks.
    fn event(&self, qp: &Qp<Self>, event: QpEvent);
}
