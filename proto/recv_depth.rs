// SPDX-License-Identifier: GPL-2.0

//! How many receives a connection keeps posted.
//!
//! An idle connection has few. When a peer sends faster than the ring is refilled, so that it runs
//! low, its depth doubles. When a whole period went by in which never many frames came between two
//! chances to refill, it is halved.
//!
//! Nothing can be taken back from a queue pair in use. What is posted beyond the depth goes as frames
//! arrive, because their buffers are not posted again; when none do, the peer has to be asked for some.

/// The receive ring of a connection: its depth, and how much of it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecvDepth {
    first: u32,
    max: u32,
    depth: u32,
    posted: u32,
    /// Frames since the last chance to refill.
    run: u32,
    /// The ring got deeper since then.
    grown: bool,
    /// The most that this was in this period.
    longest: u32,
    /// Frames that have arrived, modulo 2^32.
    arrived: u32,
    /// What that was when this period began.
    arrived_before: u32,
    /// Those of this period that we asked for.
    asked: u32,
}

/// What a period has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepthDecision {
    /// The ring is less deep now.
    pub(crate) shrank: bool,
    /// How many frames the peer is to be asked for.
    pub(crate) ask: u32,
}

impl RecvDepth {
    /// A ring with nothing posted yet, that is `first` deep when idle and `max` at the most.
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

    /// How many receives are to be posted.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// How many are.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    /// How many frames had arrived at the last chance to refill, modulo 2^32.
    pub(crate) const fn arrived(&self) -> u32 {
        self.arrived
    }

    /// How many should be posted now.
    pub(crate) const fn missing(&self) -> u32 {
        self.depth.saturating_sub(self.posted)
    }

    /// How many more are posted than should be.
    pub(crate) const fn surplus(&self) -> u32 {
        self.posted.saturating_sub(self.depth)
    }

    /// Whether a buffer is to be posted again, with `spare` others waiting for that.
    pub(crate) const fn wants_back(&self, spare: u32) -> bool {
        self.posted.saturating_add(spare) < self.depth
    }

    /// Whether so few are posted that it is time for more.
    pub(crate) const fn is_low(&self) -> bool {
        self.posted <= self.depth.saturating_sub(self.depth / 4)
    }

    /// Whether the ring is as small as it gets, so that [`Self::end_period`] has nothing to do.
    pub(crate) const fn is_small(&self) -> bool {
        self.depth <= self.first && self.surplus() == 0
    }

    /// `count` receives were posted.
    pub(crate) fn add(&mut self, count: u32) {
        self.posted = self.posted.saturating_add(count);
    }

    /// A frame arrived, so that a receive is gone. Returns whether the ring got deeper.
    pub(crate) fn arrive(&mut self) -> bool {
        self.posted = self.posted.saturating_sub(1);
        self.run = self.run.saturating_add(1);
        // Less than a quarter left: the peer is faster than this depth is good for. How good twice the
        // depth is shows after a refill.
        let grows = !self.grown && self.posted < self.depth / 4 && self.depth < self.max;
        if grows {
            self.grown = true;
            self.depth = self.depth.saturating_mul(2).min(self.max);
        }
        grows
    }

    /// There was a chance to refill. Returns how many frames had arrived since the one before.
    pub(crate) fn end_run(&mut self) -> u32 {
        let run = self.run;
        self.longest = self.longest.max(run);
        self.arrived = self.arrived.wrapping_add(run);
        self.run = 0;
        self.grown = false;
        run
    }

    /// Ends a period of measurement and begins the next, in which the peer is asked for `most` frames
    /// at the most.
    pub(crate) fn end_period(&mut self, most: u32) -> DepthDecision {
        let half = (self.depth / 2).max(self.first);
        // A ring of half the size has three quarters posted when a run begins, or it is refilled: the
        // longest must leave it one of them, or it would grow again.
        let shrank = half < self.depth && self.longest <= half / 2;
        if shrank {
            self.depth = half;
        }
        // With traffic a surplus goes by itself.
        let arrived = self.arrived.wrapping_sub(self.arrived_before);
        let quiet = arrived.saturating_sub(self.asked) < self.first;
        let ask = if quiet { self.surplus().min(most) } else { 0 };
        self.longest = 0;
        self.arrived_before = self.arrived;
        self.asked = ask;
        DepthDecision { shrank, ask }
    }
}
