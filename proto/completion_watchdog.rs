// SPDX-License-Identifier: GPL-2.0

//! When a device that does not report what was posted is asked, and when its queue pair is given up.
//!
//! A device reports work requests in the order in which they were posted, and a report stands for all before it. So a
//! report that got lost is made good by the next one, if there is one: something is posted that asks for it. If that does
//! not help either, nobody can tell what the device has done, and only a new queue pair goes on.
//!
//! A work request costs nothing for this: every now and then somebody looks how far the device is.

use super::SECOND;

/// The most time from one look to the next, in milliseconds.
const MAX_PERIOD_MS: u32 = 5_000;

/// How long a device may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchdogTimeout {
    secs: u32,
}

impl WatchdogTimeout {
    /// A queue pair is given up after `secs` seconds, and its device asked after an eighth of that; 0: never.
    pub(crate) const fn new(secs: u32) -> Self {
        Self { secs }
    }

    /// The time from one look to the next, in milliseconds: half of what passes before the device is asked.
    pub(crate) fn period_ms(self) -> u32 {
        match self.secs {
            0 => MAX_PERIOD_MS,
            secs => (secs.saturating_mul(1000) / 16).clamp(1, MAX_PERIOD_MS),
        }
    }

    /// Whether that was too long. Never, if there is no limit.
    pub(crate) fn is_over(self, stuck_ns: u64) -> bool {
        self.secs != 0 && stuck_ns >= u64::from(self.secs).saturating_mul(SECOND)
    }

    fn is_to_ask(self, stuck_ns: u64) -> bool {
        stuck_ns >= u64::from(self.secs).saturating_mul(SECOND / 8)
    }
}

/// What a look at a send queue sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqSnapshot {
    /// How many work requests of this queue pair are known to be done.
    pub(crate) done: u64,
    /// The device is to report one that it has. What it has to report none of may stay for as long as nothing else is
    /// posted.
    pub(crate) due: bool,
}

/// What to do about a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogDecision {
    /// Nothing.
    Wait,
    /// Post something that is reported.
    Ask,
    /// Make another one.
    GiveUp,
}

/// What the looks at a queue pair have in common.
#[derive(Clone, Debug)]
pub(crate) struct Unreported {
    done: u64,
    /// When a report was due and so many were done for the first time, in nanoseconds. `None`: none was due.
    since: Option<u64>,
    asked: bool,
}

impl Unreported {
    /// A queue pair at which nobody has looked.
    pub(crate) const fn new() -> Self {
        Self {
            done: 0,
            since: None,
            asked: false,
        }
    }

    /// Looks at the queue pair, `now` by a monotonic clock in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: CqSnapshot,
        now: u64,
        timeout: WatchdogTimeout,
    ) -> WatchdogDecision {
        let since = match self.since {
            // While none is done the oldest is the same.
            Some(since) if timeout.secs > 0 && snapshot.due && snapshot.done == self.done => since,
            _ => {
                *self = Self {
                    done: snapshot.done,
                    since: snapshot.due.then_some(now),
                    asked: false,
                };
                return WatchdogDecision::Wait;
            }
        };
        let stuck = now.saturating_sub(since);
        if timeout.is_over(stuck) {
            // Not at each look that comes before it is gone.
            *self = Self::new();
            WatchdogDecision::GiveUp
        } else if timeout.is_to_ask(stuck) && !self.asked {
            self.asked = true;
            WatchdogDecision::Ask
        } else {
            WatchdogDecision::Wait
        }
    }
}
