// SPDX-License-Identifier: GPL-2.0

//! Detects a peer that lives and takes nothing.
//!
//! Any frame is a sign of life, so the peer is not given up (`proto::keepalive`). Only the oldest
//! message shows progress: it is acknowledged, ended or cancelled. A peer that lives has to take it
//! within the limit on silence. Without a sign of life in the second half of that time, the
//! connection is left to the keepalive. There the peer may just have had no reason to acknowledge.

use super::keepalive::KeepaliveLimit;

/// State of a connection that is up, as one check sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSnapshot {
    /// Number of times that the connection came up.
    pub(crate) times_up: u64,
    /// Sequence number of the oldest message that waits to be sent or acknowledged.
    pub(crate) oldest: Option<u64>,
    /// Frames that have arrived, modulo 2^32.
    pub(crate) arrived: u32,
}

/// Time without progress, as far as the checks of a connection have seen it.
#[derive(Clone, Debug)]
pub(crate) struct Stall {
    snapshot: QueueSnapshot,
    /// Time of the previous check, in nanoseconds.
    last: u64,
    /// Time in nanoseconds for which the oldest message has waited.
    waited: u64,
    /// Value of `waited` when the peer last gave a sign of life.
    lived: u64,
    is_reported: bool,
}

impl Stall {
    /// Creates the state of a connection for which nothing waits.
    pub(crate) const fn new() -> Self {
        Self {
            snapshot: QueueSnapshot {
                times_up: 0,
                oldest: None,
                arrived: 0,
            },
            last: 0,
            waited: 0,
            lived: 0,
            is_reported: false,
        }
    }

    /// Checks the connection. `now` is a monotonic time in nanoseconds. Returns `true` once if the
    /// peer lives and takes nothing.
    pub(crate) fn check(
        &mut self,
        snapshot: &QueueSnapshot,
        now: u64,
        limit: KeepaliveLimit,
    ) -> bool {
        let before = core::mem::replace(&mut self.snapshot, *snapshot);
        let passed = limit.passed(core::mem::replace(&mut self.last, now), now);
        let is_same = (before.times_up, before.oldest) == (snapshot.times_up, snapshot.oldest);
        if !is_same || snapshot.oldest.is_none() {
            (self.waited, self.lived, self.is_reported) = (0, 0, false);
            return false;
        }
        self.waited = self.waited.saturating_add(passed);
        if before.arrived != snapshot.arrived {
            self.lived = self.waited;
        }
        let most = limit.progress();
        if self.is_reported || self.waited < most || self.lived < most / 2 {
            return false;
        }
        self.is_reported = true;
        true
    }

    /// Returns the time in nanoseconds for which the oldest message has waited, if the peer lives
    /// and takes nothing. Otherwise 0.
    pub(crate) fn time(&self) -> u64 {
        match self.is_reported {
            true => self.waited,
            false => 0,
        }
    }
}
