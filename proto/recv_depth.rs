// SPDX-License-Identifier: GPL-2.0

//! Number of receives that a connection keeps posted.
//!
//! An idle connection has few. The depth of the ring doubles when a peer sends faster than the ring
//! is refilled, so that it runs low. The depth is halved after a whole period in which only few
//! frames came between two refills.
//!
//! A posted receive cannot be taken back from a queue pair in use. A surplus beyond the depth
//! shrinks as frames arrive, because their buffers are not posted again. If none arrive, the peer
//! has to be asked for some.
//!
//! For this reason the depth does not grow to its maximum at once. With fragments of 8 KiB a burst
//! of a dozen frames would then cost 368 pings, instead of 14. It would save at most four of the
//! five times that the peer finds no receive before the ring is deep. Where these matter, the
//! setting `min_recv_wr` avoids all of them.

/// Receive ring of a connection: its depth, and the number of posted receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecvDepth {
    first: u32,
    max: u32,
    depth: u32,
    posted: u32,
    /// Frames since the last opportunity to refill.
    run: u32,
    /// The depth has doubled since then.
    grown: bool,
    /// Highest value of `run` in this period.
    longest: u32,
    /// Frames that have arrived, modulo 2^32.
    arrived: u32,
    /// Value of `arrived` when this period began.
    arrived_before: u32,
    /// Frames that the peer was asked for in this period.
    asked: u32,
}

/// Result of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepthDecision {
    /// The depth was halved.
    pub(crate) shrank: bool,
    /// Number of frames to ask the peer for.
    pub(crate) ask: u32,
}

impl RecvDepth {
    /// Creates a ring with nothing posted. Its depth is `first` when idle, and at most `max`.
    pub(crate) const fn new(first: u32, max: u32) -> Self {
        let first = if first < max { first } else { max };
        Self {
            first,
            max,
            depth: first,
            posted: 0,
            run: 0,
            grown: false,
            longest: 0,
            arrived: 0,
            arrived_before: 0,
            asked: 0,
        }
    }

    /// Lowers the depth of an idle ring to `first`, because the buffers for more are not there.
    /// Returns `true` if it was higher.
    pub(crate) fn lower(&mut self, first: u32) -> bool {
        let lower = first < self.first;
        if lower {
            if self.depth <= self.first {
                self.depth = first;
            }
            self.first = first;
        }
        lower
    }

    /// Returns the number of receives that should be posted.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of posted receives.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    /// Returns the number of frames that had arrived at the last opportunity to refill, modulo
    /// 2^32.
    pub(crate) const fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Returns the number of receives to post now.
    pub(crate) const fn missing(&self) -> u32 {
        self.depth.saturating_sub(self.posted)
    }

    /// Returns the number of posted receives beyond the depth.
    pub(crate) const fn surplus(&self) -> u32 {
        self.posted.saturating_sub(self.depth)
    }

    /// Returns `true` if a buffer should be posted again while `spare` other buffers wait to be
    /// posted.
    pub(crate) const fn needs_spare(&self, spare: u32) -> bool {
        self.posted.saturating_add(spare) < self.depth
    }

    /// Returns `true` if a quarter of the depth or more is missing, so that a refill is needed.
    pub(crate) const fn is_low(&self) -> bool {
        self.posted <= self.depth.saturating_sub(self.depth / 4)
    }

    /// Returns `true` if the ring is as small as it gets, so that [`Self::end_period`] has nothing
    /// to do.
    pub(crate) const fn is_small(&self) -> bool {
        self.depth <= self.first && self.surplus() == 0
    }

    /// Notes that `count` receives were posted.
    pub(crate) fn add(&mut self, count: u32) {
        self.posted = self.posted.saturating_add(count);
    }

    /// Notes that a frame has arrived and used a receive. Returns `true` if the depth was
    /// increased.
    pub(crate) fn arrive(&mut self) -> bool {
        self.posted = self.posted.saturating_sub(1);
        self.run = self.run.saturating_add(1);
        // Less than a quarter is left: the peer is too fast for this depth. Only a refill shows
        // whether twice the depth suffices.
        let grows = !self.grown && self.posted < self.depth / 4 && self.depth < self.max;
        if grows {
            self.grown = true;
            self.depth = self.depth.saturating_mul(2).min(self.max);
        }
        grows
    }

    /// Notes an opportunity to refill. Returns the number of frames since the one before.
    pub(crate) fn end_run(&mut self) -> u32 {
        let run = self.run;
        self.longest = self.longest.max(run);
        self.arrived = self.arrived.wrapping_add(run);
        self.run = 0;
        self.grown = false;
        run
    }

    /// Ends a period of measurement and begins the next one, in which the peer is asked for at most
    /// `most` frames.
    pub(crate) fn end_period(&mut self, most: u32) -> DepthDecision {
        let half = (self.depth / 2).max(self.first);
        // A ring of half the depth has three quarters posted when a run begins, or it is refilled.
        // The longest run must leave at least one quarter, or the ring would grow again.
        let shrank = half < self.depth && self.longest <= half / 2;
        if shrank {
            self.depth = half;
        }
        // With traffic a surplus shrinks by itself.
        let arrived = self.arrived.wrapping_sub(self.arrived_before);
        let quiet = arrived.saturating_sub(self.asked) < self.first;
        let ask = if quiet { self.surplus().min(most) } else { 0 };
        self.longest = 0;
        self.arrived_before = self.arrived;
        self.asked = ask;
        DepthDecision { shrank, ask }
    }
}
