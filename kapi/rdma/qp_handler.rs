// SPDX-License-Identifier: GPL-2.0

//! Who hears of what happens on a queue pair.

use super::{failure::Failure, qp::Qp, shard::BufMut};
use crate::bindings;
use kernel::prelude::*;

/// A message that arrived: the first `len` bytes of `buf`.
pub(crate) struct Received {
    pub(crate) buf: BufMut,
    /// In bytes; never more than the buffer has.
    pub(crate) len: u32,
}

/// An asynchronous event of a queue pair, or of its completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpEvent {
    /// The queue pair can do nothing any more: `enum ib_event_type`.
    Fatal(i32),
    /// Any other `enum ib_event_type`.
    Other(u32),
}

impl QpEvent {
    pub(super) fn new(event: u32) -> Self {
        match event {
            bindings::ib_event_type_IB_EVENT_QP_FATAL
            | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
            // Completions are lost, and no event of the queue pair may follow.
            | bindings::ib_event_type_IB_EVENT_CQ_ERR
            // CAST: small.
            | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR => Self::Fatal(event as i32),
            _ => Self::Other(event),
        }
    }
}

/// What becomes of completions. Where nothing else is said, in softirq context, one at a time for one queue
/// pair.
pub(crate) trait QpHandler: Sized + Send + Sync + 'static {
    /// What only polling works with, so that it needs no lock of its own.
    type Poll: Send + Unpin;

    /// A message arrived. Returns how much work it was, in parts that the sender decides on: a run of
    /// completions ends after [`MOST_PARTS`](super::qp::MOST_PARTS), or a few more.
    fn received(&self, qp: &Qp<Self>, poll: &mut Self::Poll, message: Received) -> u32;

    /// Sends are done and their slots free: `reports` of them have said so.
    fn sent(&self, qp: &Qp<Self>, reports: usize);

    /// The first work request failed, or was flushed. Reported once for each queue, and again if a
    /// failure follows that is more than a flush. The buffers are freed.
    fn failed(&self, qp: &Qp<Self>, failure: Failure);

    /// A receive was used up by something else than a message, of which its buffer may hold nothing: a write with
    /// immediate data, or a message that has invalidated a region. The buffer is freed.
    fn misused(&self, opcode: u32);

    /// The device has not flushed what was posted when the queue pair was closed, or not in time; it
    /// is destroyed as it is. Process context.
    fn not_flushed(&self, error: Error);

    /// A run of completions has ended, 64 at most; the next run may follow at once.
    fn polled(&self, qp: &Qp<Self>, poll: &mut Self::Poll);

    /// There are completions, which will be polled. Any context, also a hard interrupt: take no lock.
    fn notified(&self);

    /// An asynchronous event. Any context, also a hard interrupt: take no lock.
    fn event(&self, qp: &Qp<Self>, event: QpEvent);
}
