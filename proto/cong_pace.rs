// SPDX-License-Identifier: GPL-2.0

//! Limit on how often an address sends its congestion map.
//!
//! A program with a tiny receive buffer changes the map with each message and each read. Each
//! change would send 8 KiB to every peer of the address, at the expense of all its users. So an
//! address sends one map per millisecond on average, which contains all changes until then.
//!
//! A few rounds may follow each other at once. So the port of a slow reader is announced without
//! delay, although the timers of many kernels are coarser than a millisecond.

/// Average time between two rounds.
const INTERVAL_NS: u64 = 1_000_000;

/// Number of rounds that may begin at once after a quiet time.
pub(crate) const BURST: u64 = 8;

/// Pace of the rounds of one address. A round sends the map to all peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapPace {
    /// Time at which the next round would begin if all rounds had the same distance.
    next: u64,
}

impl MapPace {
    /// Creates the pace of an address that has not sent its map yet.
    pub(crate) const fn new() -> Self {
        Self { next: 0 }
    }

    /// Returns the time in nanoseconds until a round may begin. `now` is a monotonic time in
    /// nanoseconds.
    pub(crate) const fn wait(&self, now: u64) -> u64 {
        self.next.saturating_sub(now)
    }

    /// Returns the time at which the next round is due, in nanoseconds.
    pub(crate) const fn due(&self) -> u64 {
        self.next
    }

    /// Counts a round that begins now.
    pub(crate) fn begin(&mut self, now: u64) {
        let earliest = now.saturating_sub((BURST - 1) * INTERVAL_NS);
        self.next = self.next.max(earliest).saturating_add(INTERVAL_NS);
    }
}
