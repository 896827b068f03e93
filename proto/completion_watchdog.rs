// SPDX-License-Identifier: GPL-2.0

//! Watchdog of a send queue: recovers lost completions, and gives up a queue pair whose device
//! reports none.
//!
//! A device completes work requests in the order in which they were posted, and a completion
//! implies all earlier ones. So a lost completion is recovered by the next one: a signaled work
//! request is posted to provoke it. If that does not help either, the progress of the device is
//! unknown, and only a new queue pair can continue.
//!
//! Posting a work request costs nothing for this: a periodic check compares the progress of the
//! device with that of the previous check.

use super::{
    unchanged::Unchanged,
    SECOND, //
};

/// Longest time between two checks.
const MAX_PERIOD_MS: u32 = 5_000;

/// Timeout for a send queue that makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchdogTimeout {
    secs: u32,
}

impl WatchdogTimeout {
    /// Creates a timeout after which a queue pair is given up. Its device is asked after an eighth
    /// of `secs`; 0 disables the watchdog.
    pub(crate) const fn new(secs: u32) -> Self {
        Self { secs }
    }

    /// Returns the time between two checks: half of the time after which the device is asked.
    pub(crate) fn period_ms(self) -> u32 {
        match self.secs {
            0 => MAX_PERIOD_MS,
            secs => (secs.saturating_mul(1000) / 16).clamp(1, MAX_PERIOD_MS),
        }
    }

    /// Returns `true` if `stuck_ns` without progress exceeds the timeout. Always `false` if the
    /// watchdog is disabled.
    pub(crate) fn is_over(self, stuck_ns: u64) -> bool {
        self.secs != 0 && stuck_ns >= u64::from(self.secs).saturating_mul(SECOND)
    }

    fn is_kick_due(self, stuck_ns: u64) -> bool {
        stuck_ns >= u64::from(self.secs).saturating_mul(SECOND / 8)
    }
}

/// State of a send queue as one check sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqSnapshot {
    /// Number of work requests of this queue pair that are known to be done.
    pub(crate) done: u64,
    /// The completion of a posted, signaled work request is outstanding. Unsignaled ones may stay
    /// unreported as long as nothing else is posted.
    pub(crate) due: bool,
}

/// Result of a check of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogDecision {
    /// No action.
    Wait,
    /// Post a signaled work request.
    Kick,
    /// Give up the queue pair, so that the connection makes a new one.
    GiveUp,
}

/// State that is kept between the checks of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct CompletionWatchdog {
    /// Number of completed work requests, while a completion is due.
    done: Unchanged<u64>,
    kicked: bool,
}

impl CompletionWatchdog {
    /// Creates the state of a queue pair that was never checked.
    pub(crate) const fn new() -> Self {
        Self {
            done: Unchanged::new(),
            kicked: false,
        }
    }

    /// Checks the queue pair. `now` is a monotonic time in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: CqSnapshot,
        now: u64,
        timeout: WatchdogTimeout,
    ) -> WatchdogDecision {
        if timeout.secs == 0 || !snapshot.due {
            self.done = Unchanged::new();
        }
        // The oldest outstanding work request is the same as long as `done` does not change.
        let stuck = match snapshot.due {
            true => self.done.observe(snapshot.done, now),
            false => None,
        };
        let Some(stuck) = stuck else {
            self.kicked = false;
            return WatchdogDecision::Wait;
        };
        if timeout.is_over(stuck) {
            // Reset, so that the checks before the queue pair is gone do not give it up again.
            *self = Self::new();
            WatchdogDecision::GiveUp
        } else if timeout.is_kick_due(stuck) && !self.kicked {
            self.kicked = true;
            WatchdogDecision::Kick
        } else {
            WatchdogDecision::Wait
        }
    }
}
