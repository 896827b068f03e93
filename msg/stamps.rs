// SPDX-License-Identifier: GPL-2.0

//! When a message passed the points of the receive path, for sockets that ask.
//!
//! Source: `struct rds_cmsg_rx_trace` and its points in `include/uapi/linux/rds.h`.

use crate::kapi::time;
use kernel::prelude::*;

/// Spans between two points that can be asked for.
const SPANS: usize = 3;

/// When a message passed the points, in nanoseconds of the monotonic clock but for `at`.
pub(crate) struct Stamps {
    /// Its first frame had come, or the sender on this node called.
    arrived: u64,
    /// There was memory to note that.
    started: u64,
    /// It was complete, and queued at its socket.
    delivered: u64,
    /// When that was, in nanoseconds since 1970.
    pub(crate) at: u64,
}

impl Stamps {
    /// A message is coming in. Any context.
    pub(super) fn arrive() -> Self {
        let arrived = time::monotonic_ns();
        Self {
            arrived,
            started: arrived,
            delivered: arrived,
            at: 0,
        }
    }

    /// There is memory to note that. Any context.
    pub(super) fn start(self) -> Self {
        Self {
            started: time::monotonic_ns(),
            ..self
        }
    }

    /// The message is being queued at its socket. Any context.
    pub(super) fn deliver(&mut self) {
        self.delivered = time::monotonic_ns();
        self.at = time::real_ns();
    }
}

/// Why there are no such [`Traces`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTraces {
    /// More spans than there are.
    TooMany,
    /// One that there is not.
    NoSpan,
}

/// The spans that `SO_RDS_MSG_RXPATH_LATENCY` asked for.
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

    /// Reads `struct rds_rx_trace_so`: a number, and which spans. What is behind those does not count.
    pub(crate) fn parse([count, a, b, c]: [u8; 4]) -> Result<Self, BadTraces> {
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

    /// The `struct rds_cmsg_rx_trace` of a message that is being read: which spans, and their lengths in
    /// nanoseconds.
    pub(crate) fn answer(&self, stamps: &Stamps) -> [u8; 32] {
        let points = [
            stamps.arrived,
            stamps.started,
            stamps.delivered,
            time::monotonic_ns(),
        ];
        let mut out = [0; 32];
        let (head, lengths) = out.split_at_mut(8);
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
