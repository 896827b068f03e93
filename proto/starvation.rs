// SPDX-License-Identifier: GPL-2.0

//! Decides when connections that find no memory are given up.
//!
//! Memory may be short for a moment only, so a connection waits and tries again. Some lacks do not
//! end without a change. Partial messages may keep the memory which they wait for, or memory may be
//! free in small pieces only. The next connection sends such messages again, and uses smaller
//! fragments.
//!
//! Each reason to give up has a time of its own, which it must have lasted without a break. A
//! reason that appears after a long wait for another one gets its whole time.

use super::{
    wire::FragmentSize,
    SECOND, //
};

/// Time for which programs that read, or the kernel, may free memory.
const SHORT_WAIT_NS: u64 = SECOND;

/// The same while no buffer is found for any reason, and the next connection could use a pool of
/// smaller fragments. Programs may read at any time. It is also the time for which sends may get on
/// with few buffers.
const LONG_WAIT_NS: u64 = 30 * SECOND;

/// Minimum time between two connections of a device that are given up so that others get their
/// memory.
const INTERVAL_NS: u64 = SECOND;

/// The same if the next connection gets other memory, in small pieces. Its peer connects again at
/// once.
const SMALL_INTERVAL_NS: u64 = SECOND / 50;

/// Reason why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The pool is at its limit until readers free buffers or another ring shrinks.
    Limit,
    /// Memory is short, maybe only in pieces of the fragment size.
    NoMemory,
}

/// Time since which a condition holds.
#[derive(Clone, Copy, Debug)]
struct Since(Option<u64>);

impl Since {
    /// Notes whether the condition holds at time `now`. Returns `true` if it has for `longest`.
    fn lasts(&mut self, holds: bool, now: u64, longest: u64) -> bool {
        if !holds {
            self.0 = None;
            return false;
        }
        let since = *self.0.get_or_insert(now);
        now.saturating_sub(since) >= longest
    }
}

/// Wait of a starved receive ring for buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starvation {
    /// There is no buffer.
    starved: Since,
    /// There is no memory for large fragments.
    no_memory: Since,
    /// There is no buffer, and a message has arrived in part.
    partial: Since,
    /// Last message that had arrived at the last check of the wait.
    last: u64,
}

impl Starvation {
    pub(crate) const fn new() -> Self {
        Self {
            starved: Since(None),
            no_memory: Since(None),
            partial: Since(None),
            last: 0,
        }
    }

    pub(crate) fn is_starved(self) -> bool {
        self.starved.0.is_some()
    }

    /// Ends the wait: there are buffers, or the connection is given up.
    pub(crate) fn end(&mut self) {
        *self = Self::new();
    }

    /// Begins or continues the wait at time `now`, in nanoseconds. Returns `true` if it has lasted
    /// long enough to give the connection up.
    ///
    /// `last` is the sequence of the last message that has arrived whole. Short messages may get on
    /// with a single receive, whose buffer is posted again, so each one restarts the wait.
    /// `partial`: another one has arrived in part.
    pub(crate) fn wait(
        &mut self,
        now: u64,
        why: Shortage,
        fragment: FragmentSize,
        last: u64,
        partial: bool,
    ) -> bool {
        if self.last != last {
            self.end();
            self.last = last;
        }
        let is_large = fragment != FragmentSize::K4;
        let lacks_pieces = is_large && why == Shortage::NoMemory;
        let starved = self.starved.lasts(true, now, LONG_WAIT_NS);
        let no_memory = self.no_memory.lasts(lacks_pieces, now, SHORT_WAIT_NS);
        let partial = self.partial.lasts(partial, now, SHORT_WAIT_NS);
        (is_large && starved) || no_memory || partial
    }
}

/// State of a connection over TCP that is not read, because there is no buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCheck {
    /// Number of frames that were received, modulo 2^32.
    pub(crate) frames: u32,
    /// A message has arrived in part.
    pub(crate) partial: bool,
    /// The peer has ended the stream. What has arrived can still be read.
    pub(crate) ended: bool,
    /// The peer sends again what was not delivered. Another one counts all that TCP has as
    /// delivered.
    pub(crate) sends_again: bool,
}

/// Wait of a connection over TCP for buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamStarvation {
    /// There is no buffer, and the connection keeps what others may need.
    keeps: Since,
    /// Number of frames at the last check.
    last: u32,
}

impl StreamStarvation {
    pub(crate) const fn new() -> Self {
        Self {
            keeps: Since(None),
            last: 0,
        }
    }

    /// Ends the wait: there are buffers, or the connection is given up.
    pub(crate) fn end(&mut self) {
        self.keeps = Since(None);
    }

    /// Begins or continues the wait at time `now`, in nanoseconds. Returns `true` if it has lasted
    /// long enough to give the connection up.
    ///
    /// Each frame restarts the wait. The next connection would use the same pools, so one that
    /// keeps nothing is not given up. With a peer that does not send again, messages get lost, so
    /// programs have more time to free memory.
    pub(crate) fn wait(&mut self, now: u64, check: &StreamCheck) -> bool {
        if self.last != check.frames {
            self.end();
            self.last = check.frames;
        }
        let longest = match (check.sends_again, check.ended) {
            (true, true) => 0,
            (true, false) => SHORT_WAIT_NS,
            (false, _) => LONG_WAIT_NS,
        };
        self.keeps.lasts(check.partial || check.ended, now, longest)
    }
}

/// Progress of a transmission, as one check of its wait sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCheck {
    /// Number of frames with payload that were sent, modulo 2^32.
    pub(crate) frames: u32,
    /// Number of work requests that were posted, read after `frames`.
    pub(crate) posted: u64,
    /// Number of these that are known to be done.
    pub(crate) done: u64,
    /// The device owes the completion of one of them.
    pub(crate) due: bool,
}

/// Wait of a transmission for memory in large pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendStarvation {
    /// There is no memory, however many frames the few buffers suffice for.
    starved: Since,
    /// There is no memory, and no payload is sent.
    stuck: Since,
    /// Number of frames at the last check, and of work requests that were posted with the last
    /// frame.
    last: Option<(u32, u64)>,
}

impl SendStarvation {
    pub(crate) const fn new() -> Self {
        Self {
            starved: Since(None),
            stuck: Since(None),
            last: None,
        }
    }

    /// Returns `true` if another check has to follow soon, which ends the wait or continues it.
    pub(crate) fn is_starved(self) -> bool {
        self.starved.0.is_some()
    }

    /// Ends the wait: there is memory, or nothing waits for it.
    pub(crate) fn end(&mut self) {
        self.starved = Since(None);
        self.stuck = Since(None);
    }

    /// Begins or continues the wait at time `now`, in nanoseconds. Returns `true` if it has lasted
    /// long enough to give the connection up.
    ///
    /// Frames with payload show that the transmission gets on with the few buffers that there are.
    /// As long as the device owes the completion of one, that may return a buffer. Later work
    /// requests return none: the wait itself causes headers.
    pub(crate) fn wait(&mut self, now: u64, check: SendCheck) -> bool {
        let posted = match self.last {
            Some((frames, posted)) if frames == check.frames => posted,
            _ => {
                self.stuck = Since(None);
                self.last = Some((check.frames, check.posted));
                check.posted
            }
        };
        let may_return = check.due && check.done < posted;
        let starved = self.starved.lasts(true, now, LONG_WAIT_NS);
        let stuck = self.stuck.lasts(!may_return, now, SHORT_WAIT_NS);
        starved || stuck
    }
}

/// Returns the time before which no other connection of a device may be given up, if one is at time
/// `now`. All times are in nanoseconds.
///
/// `in_small_pieces`: there is memory for smaller fragments, which its next endpoint uses. Without
/// that, its own memory may suffice for the others. So they are given time to use it. The search
/// for memory has taken `spent`, which may be longer than that time.
pub(crate) const fn next_give_up(now: u64, spent: u64, in_small_pieces: bool) -> u64 {
    let begin = now.saturating_add(spent);
    begin.saturating_add(match in_small_pieces {
        true => SMALL_INTERVAL_NS,
        false => INTERVAL_NS,
    })
}
