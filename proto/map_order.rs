// SPDX-License-Identifier: GPL-2.0

//! Order of the congestion maps of a C peer that uses several paths.
//!
//! C RDS sends a map on the path that transmits next, and a map has no number. If the older one of
//! two arrives last, a port counts as full that has room. It does so until the next map, which may
//! never come. C RDS sends a map when a path comes up. So a node that has heard no map for a while
//! connects a path again, if the last maps came on different paths.
//!
//! Ownership: none, this state has only numbers. Errors: none.

use super::SECOND;

/// Time without a map after which no older one is expected.
const QUIET_NS: u64 = 2 * SECOND;

/// Shortest time between two requests. Each makes a path connect again.
const PERIOD_NS: u64 = 15 * SECOND;

/// Order of the maps that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapOrder {
    /// Path and time of the last map.
    last: Option<(u8, u64)>,
    /// The last map may be older than one before it.
    is_doubtful: bool,
    /// Time of the last request.
    requested: Option<u64>,
}

impl MapOrder {
    /// Notes a map that has arrived on `path` at `now`, in nanoseconds.
    pub(crate) fn note(&mut self, path: u8, now: u64) {
        // One that comes so long after the last is newer.
        let before = self.last.filter(|(_, at)| !passed(*at, QUIET_NS, now));
        let differs = before.is_some_and(|(before, _)| before != path);
        self.is_doubtful = before.is_some() && (self.is_doubtful || differs);
        self.last = Some((path, now));
    }

    /// Forgets all maps.
    pub(crate) fn forget(&mut self) {
        self.last = None;
        self.is_doubtful = false;
    }

    /// Returns `true` if a port that counts as full may have room. The caller has to connect a
    /// path again then, and to call [`Self::request`].
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let is_quiet = self.last.is_some_and(|(_, at)| passed(at, QUIET_NS, now));
        let requested = self.requested;
        let was_recent = requested.is_some_and(|at| !passed(at, PERIOD_NS, now));
        self.is_doubtful && is_quiet && !was_recent
    }

    /// Notes that a path is being connected again, at `now`.
    pub(crate) fn request(&mut self, now: u64) {
        self.requested = Some(now);
    }
}

/// Returns `true` if `time` has passed since `since`.
const fn passed(since: u64, time: u64, now: u64) -> bool {
    now.saturating_sub(since) >= time
}
