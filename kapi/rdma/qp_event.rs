// SPDX-License-Identifier: GPL-2.0

//! Events of a queue pair that are no completions.

use crate::bindings;

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
