// SPDX-License-Identifier: GPL-2.0

//! Times at which a message passed the points of the receive path, for sockets that request them.
//!
//! Source: `struct rds_cmsg_rx_trace` and its points in `include/uapi/linux/rds.h`.

use crate::{
    kapi::time,
    uapi::{
        rds_cmsg_rx_trace,
        rds_rx_trace_so,
        RDS_MSG_RX_DGRAM_TRACE_MAX, //
    }, //
};
use core::mem::offset_of;
use kernel::prelude::*;

/// Number of spans between two points that can be requested.
// CAST: a small number.
const SPANS: usize = RDS_MSG_RX_DGRAM_TRACE_MAX as usize;

/// Offset of the lengths in the answer. The number of spans and the spans are at the start.
const LENGTHS: usize = offset_of!(rds_cmsg_rx_trace, rx_trace);

const _: () = {
    assert!(offset_of!(rds_rx_trace_so, rx_traces) == 0);
    assert!(offset_of!(rds_rx_trace_so, rx_trace_pos) == 1);
    assert!(offset_of!(rds_cmsg_rx_trace, rx_traces) == 0);
    assert!(offset_of!(rds_cmsg_rx_trace, rx_trace_pos) == 1);
};

/// Times of a message, in nanoseconds of the monotonic clock except `at`.
pub(crate) struct Stamps {
    /// The first frame arrived, or the local sender made its call.
    arrived: u64,
    /// Memory for the times was allocated.
    started: u64,
    /// The message was complete and queued at its socket.
    delivered: u64,
    /// Time of delivery in nanoseconds since 1970.
    pub(crate) at: u64,
}

impl Stamps {
    /// Notes the arrival of a message.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn arrive() -> Self {
        let arrived = time::monotonic_ns();
        Self {
            arrived,
            started: arrived,
            delivered: arrived,
            at: 0,
        }
    }

    /// Notes that memory for the times was allocated.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn start(self) -> Self {
        Self {
            started: time::monotonic_ns(),
            ..self
        }
    }

    /// Notes that the message is queued at its socket.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn deliver(&mut self) {
        self.delivered = time::monotonic_ns();
        self.at = time::real_ns();
    }
}

/// Reasons for invalid [`Traces`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTraces {
    /// More spans than exist.
    TooMany,
    /// A span that does not exist.
    NoSpan,
}

/// The spans that `SO_RDS_MSG_RXPATH_LATENCY` selected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traces {
    count: u8,
    spans: [u8; SPANS],
}

impl Traces {
    pub(crate) const NONE: Self = Self {
        count: 0,
        spans: [0; SPANS],
    };

    /// Parses `struct rds_rx_trace_so`: a count and the spans. Entries behind the count are
    /// ignored.
    pub(crate) fn parse(
        [count, a, b, c]: [u8; size_of::<rds_rx_trace_so>()],
    ) -> Result<Self, BadTraces> {
        let mut spans = [a, b, c];
        let asked = spans.split_at_mut_checked(count.into());
        let (asked, rest) = asked.ok_or(BadTraces::TooMany)?;
        rest.fill(0);
        if asked.iter().any(|span| usize::from(*span) >= SPANS) {
            return Err(BadTraces::NoSpan);
        }
        Ok(Self { count, spans })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the `struct rds_cmsg_rx_trace` of a message that is being read: the spans, and their
    /// lengths in nanoseconds.
    pub(crate) fn answer(&self, stamps: &Stamps) -> [u8; size_of::<rds_cmsg_rx_trace>()] {
        let points = [
            stamps.arrived,
            stamps.started,
            stamps.delivered,
            time::monotonic_ns(),
        ];
        let mut out = [0; size_of::<rds_cmsg_rx_trace>()];
        let (head, lengths) = out.split_at_mut(LENGTHS);
        let which = Iterator::chain(core::iter::once(&self.count), &self.spans);
        for (to, from) in head.iter_mut().zip(which) {
            *to = *from;
        }
        let asked = self.spans.iter().take(self.count.into());
        for (to, span) in lengths.chunks_exact_mut(8).zip(asked) {
            let pair = points.windows(2).nth((*span).into());
            let length = match pair {
                Some([from, until]) => until.saturating_sub(*from),
                _ => 0,
            };
            to.copy_from_slice(&length.to_ne_bytes());
        }
        out
    }
}
