// SPDX-License-Identifier: GPL-2.0

//! When an idle connection gives up its queue pair, and when it is forgotten.
//!
//! A message costs nothing here: every now and then somebody looks at each connection, and compares
//! the sequence numbers with those of the last look.
//!
//! A connection is forgotten as a whole if it has never carried a message. Otherwise its numbers are
//! what makes messages arrive once and in order: they stay, unless there is no room for more
//! connections. Then two things have to be right when the next connection to that peer counts anew:
//!
//! - Our numbers begin behind all that we have used, and C RDS takes them for new ones, also in messages
//!   that it is sent twice. A peer like us would notice as well that they have begun at 1.
//! - The peer's numbers go on, and ours is the side that takes any number. Only what it sends for the second
//!   time could be taken twice. So it must have nothing left to send again: our acknowledgement went out on a
//!   connection which was still up at the look after that, and no message has come since. If that cannot be
//!   said, the position in its numbers is kept, and nothing else.
//!
//! C RDS connects again at once when it is closed, whether it has something to send or not. So a connection to it is
//! closed only to be forgotten, and others have a chance to come first. So is one to a peer that may use memory of this
//! node: it does that without a message, and nobody sees it here.

use super::SECOND;

/// How long a connection that was never used stays, at the most, in seconds.
const UNUSED_SECS: u32 = 60;

/// How long idle connections stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleTimeouts {
    /// How long no message may go either way, in seconds; 0: for ever.
    idle_secs: u32,
}

impl IdleTimeouts {
    /// Connections may be idle for `idle_secs` seconds; 0: for ever.
    pub(crate) const fn new(idle_secs: u32) -> Self {
        Self { idle_secs }
    }

    /// How long a connection stays that was never used, in seconds.
    fn unused_secs(self) -> u32 {
        match self.idle_secs {
            0 => UNUSED_SECS,
            idle => idle.min(UNUSED_SECS),
        }
    }

    /// The time from one look to the next, in milliseconds: a quarter of the shorter limit.
    pub(crate) fn period_ms(self) -> u32 {
        self.unused_secs().saturating_mul(250)
    }

    fn is_idle(self, quiet_ns: u64) -> bool {
        self.idle_secs > 0 && quiet_ns >= u64::from(self.idle_secs).saturating_mul(SECOND)
    }

    fn is_unused(self, quiet_ns: u64) -> bool {
        quiet_ns >= u64::from(self.unused_secs()).saturating_mul(SECOND)
    }
}

/// What hangs on a connection, and changes with each message and each time that it comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleProgress {
    /// The sequence of the next message that is queued.
    pub(crate) next_tx: u64,
    /// The sequence expected next.
    pub(crate) next_rx: u64,
    /// How often the connection came up.
    pub(crate) times_up: u64,
}

/// What a look at a connection sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleSnapshot {
    /// What to compare.
    pub(crate) marks: IdleProgress,
    /// Messages flow.
    pub(crate) up: bool,
    /// There is no endpoint, and none is wanted.
    pub(crate) down: bool,
    /// Messages wait to be sent or to be acknowledged, one has arrived in part, or the device is at an operation.
    pub(crate) pending: bool,
    /// An acknowledgement waits for room to go out.
    pub(crate) ack_due: bool,
    /// Peers may use memory of this node, which they do without a message.
    pub(crate) offers: bool,
    /// No message was ever sent, nor has one arrived.
    pub(crate) unused: bool,
    /// The peer has told on this connection that it runs this implementation. C RDS reconnects at once,
    /// whether it needs to or not.
    pub(crate) like_us: bool,
}

/// What to do about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleDecision {
    /// Nothing.
    Keep,
    /// Acknowledge what has arrived, so that the peer has nothing pending either. Once, when it begins to
    /// be idle.
    Acknowledge,
    /// Close it: the next message opens it again.
    Close,
    /// Forget it. Nothing hangs on it.
    Forget,
    /// Close it and forget it if there is no room for more connections.
    EndForRoom,
    /// Forget it if there is no room for more connections.
    ForgetForRoom,
}

/// What the looks at a connection have in common.
#[derive(Clone, Debug)]
pub(crate) struct IdleTracker {
    marks: IdleProgress,
    /// When the marks were seen as they are for the first time, in nanoseconds. 0: they were not.
    since: u64,
    /// All that had arrived was acknowledged.
    acknowledged: bool,
    /// The connection was still up at a look after that: the peer has the acknowledgement.
    settled: bool,
}

impl IdleTracker {
    /// A connection at which nobody has looked.
    pub(crate) const fn new() -> Self {
        Self {
            marks: IdleProgress {
                next_tx: 0,
                next_rx: 0,
                times_up: 0,
            },
            since: 0,
            acknowledged: false,
            settled: false,
        }
    }

    /// Whether these are the marks of the last look.
    pub(crate) fn is_about(&self, marks: &IdleProgress) -> bool {
        self.marks == *marks
    }

    /// Whether the peer has nothing that it may send again. Otherwise the position in its numbers must not be
    /// forgotten.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Looks at the connection, `now` by a monotonic clock in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: &IdleSnapshot,
        now: u64,
        idle_timeouts: IdleTimeouts,
    ) -> IdleDecision {
        if self.marks != snapshot.marks || self.since == 0 {
            *self = Self {
                marks: snapshot.marks,
                since: now.max(1),
                ..Self::new()
            };
            return IdleDecision::Keep;
        }
        let quiet = now.saturating_sub(self.since);
        if snapshot.up {
            if snapshot.ack_due {
                // The look that counts is one after it has gone out.
                self.acknowledged = false;
                return IdleDecision::Keep;
            }
            if !self.acknowledged {
                self.acknowledged = true;
                return IdleDecision::Acknowledge;
            }
            self.settled = true;
        }
        if snapshot.pending {
            return IdleDecision::Keep;
        }
        match (snapshot.up, snapshot.down) {
            (true, _) if snapshot.like_us && !snapshot.offers && idle_timeouts.is_idle(quiet) => {
                IdleDecision::Close
            }
            (_, true) if snapshot.unused && idle_timeouts.is_unused(quiet) => IdleDecision::Forget,
            (true, _) if self.settled && idle_timeouts.is_idle(quiet) => IdleDecision::EndForRoom,
            (_, true) if idle_timeouts.is_idle(quiet) => IdleDecision::ForgetForRoom,
            _ => IdleDecision::Keep,
        }
    }
}
