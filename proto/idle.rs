// SPDX-License-Identifier: GPL-2.0

//! Decides when an idle connection closes its queue pair, and when it is forgotten.
//!
//! Messages pay nothing for this: a periodic check compares the sequence numbers of each connection
//! with those of the previous check.
//!
//! A connection that has never carried a message is forgotten entirely. Otherwise its sequence
//! numbers ensure that messages arrive once and in order. They are kept, unless there is no room
//! for more connections. In that case two conditions make it safe that the next connection to that
//! peer starts with other numbers:
//!
//! - The local numbers begin behind all that were used. C RDS takes them for new ones, even in
//!   retransmitted messages. A peer that runs this module also notices a new generation number.
//! - The peer's numbers go on, and the new connection accepts any number. Only a retransmission
//!   could be delivered twice, so the peer must have nothing to retransmit. That is certain if the
//!   connection was still up at a check 5 s after the local acknowledgement. No message may have
//!   come since. Otherwise the position in the peer's numbers is kept, and nothing
//!   else.
//!
//! C RDS reconnects at once when a connection is closed, even if it has nothing to send. So a
//! connection to C RDS is closed only to be forgotten. Its next request comes a little later, so
//! others that need a connection have a chance to be first. The same applies to a peer that may use
//! memory of this node: its operations carry no message, so this node does not see them.

use super::{
    unchanged::Unchanged,
    SECOND, //
};

/// Longest time for which a connection that was never used stays.
const UNUSED_SECS: u32 = 60;

/// Time after which a queue pair that could not deliver an acknowledgement has failed. Checks may
/// follow each other sooner. A queue pair retries for one to four seconds.
const SETTLED_NS: u64 = 5 * SECOND;

/// Idle times after which connections are closed and forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleTimeouts {
    /// Time without a message in either direction. 0: unlimited.
    idle_secs: u32,
}

impl IdleTimeouts {
    /// Creates timeouts for connections that may be idle for `idle_secs`. 0: unlimited.
    pub(crate) const fn new(idle_secs: u32) -> Self {
        Self { idle_secs }
    }

    /// Returns the time for which a connection stays that was never used.
    fn unused_secs(self) -> u32 {
        match self.idle_secs {
            0 => UNUSED_SECS,
            idle => idle.min(UNUSED_SECS),
        }
    }

    /// Returns the time between two checks: a quarter of the shorter limit.
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

/// Counters of a connection that change with each message and each time that it comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleProgress {
    /// Sequence number of the next message to be queued.
    pub(crate) next_tx: u64,
    /// Sequence number expected next.
    pub(crate) next_rx: u64,
    /// Number of times that the connection came up, once the peer has answered.
    pub(crate) times_up: u64,
}

impl IdleProgress {
    /// Creates counters. `next_tx` and `next_rx` are the sequence numbers of the next messages to
    /// be queued and received; `times_up` counts how often the connection came up. Over TCP anybody
    /// can make a connection come up again and again. So that is progress only once the peer has
    /// answered.
    pub(crate) const fn new(next_tx: u64, next_rx: u64, times_up: u64, has_answered: bool) -> Self {
        Self {
            next_tx,
            next_rx,
            times_up: if has_answered { times_up } else { 0 },
        }
    }
}

/// State of a connection as one check sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleSnapshot {
    /// Counters to compare with those of the previous check.
    pub(crate) marks: IdleProgress,
    /// The connection is up.
    pub(crate) up: bool,
    /// There is no endpoint, and none is wanted.
    pub(crate) down: bool,
    /// Messages wait to be sent or acknowledged, one has arrived in part, or the device processes
    /// an operation.
    pub(crate) pending: bool,
    /// An acknowledgement waits for room to be sent.
    pub(crate) ack_due: bool,
    /// The next attempt to connect is only for the peer, which may have something to send.
    pub(crate) for_peer: bool,
    /// Peers may use memory of this node, for which they send no message.
    pub(crate) offers: bool,
    /// No message was ever sent or received.
    pub(crate) unused: bool,
    /// The peer has shown on this connection that it runs this module. C RDS reconnects at once,
    /// whether it needs to or not.
    pub(crate) is_rds_rust: bool,
}

/// Result of a check of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleDecision {
    /// No action.
    Keep,
    /// Acknowledge what has arrived, so that the peer has nothing pending either. Returned once,
    /// when the connection becomes idle.
    Acknowledge,
    /// Close the connection. The next message opens it again.
    Close,
    /// Forget the connection. None of its state is needed.
    Forget,
    /// Close and forget the connection if there is no room for more connections.
    EndForRoom,
    /// Forget the connection if there is no room for more connections.
    ForgetForRoom,
}

/// State that is kept between the checks of a connection.
#[derive(Clone, Debug)]
pub(crate) struct IdleTracker {
    marks: Unchanged<IdleProgress>,
    /// Monotonic time in nanoseconds since which all that has arrived is acknowledged.
    acknowledged: Option<u64>,
    /// The connection was still up [`SETTLED_NS`] after that, so the peer has the acknowledgement.
    settled: bool,
}

impl IdleTracker {
    /// Creates the state of a connection that was never checked.
    pub(crate) const fn new() -> Self {
        Self {
            marks: Unchanged::new(),
            acknowledged: None,
            settled: false,
        }
    }

    /// Returns `true` if these are the counters of the last check.
    pub(crate) fn is_about(&self, marks: &IdleProgress) -> bool {
        self.marks.is(marks)
    }

    /// Returns `true` if the peer has nothing to retransmit. Otherwise the position in its numbers
    /// must not be forgotten.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Makes the peer count as one that has nothing to retransmit.
    #[cfg(rds_kunit)]
    pub(crate) fn set_settled(&mut self) {
        self.settled = true;
    }

    /// Checks the connection. `now` is a monotonic time in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: &IdleSnapshot,
        now: u64,
        idle_timeouts: IdleTimeouts,
    ) -> IdleDecision {
        let Some(quiet) = self.marks.observe(snapshot.marks, now) else {
            self.acknowledged = None;
            self.settled = false;
            return IdleDecision::Keep;
        };
        if snapshot.up {
            if snapshot.ack_due {
                // The acknowledgement is settled only by a check after it was sent.
                self.acknowledged = None;
                return IdleDecision::Keep;
            }
            let Some(since) = self.acknowledged else {
                self.acknowledged = Some(now);
                return IdleDecision::Acknowledge;
            };
            self.settled |= now.saturating_sub(since) >= SETTLED_NS;
        }
        if snapshot.pending {
            return IdleDecision::Keep;
        }
        match (snapshot.up, snapshot.down || snapshot.for_peer) {
            (true, _)
                if snapshot.is_rds_rust && !snapshot.offers && idle_timeouts.is_idle(quiet) =>
            {
                IdleDecision::Close
            }
            (_, true) if snapshot.unused && idle_timeouts.is_unused(quiet) => {
                match snapshot.for_peer {
                    true => IdleDecision::ForgetForRoom,
                    false => IdleDecision::Forget,
                }
            }
            (true, _) if self.settled && idle_timeouts.is_idle(quiet) => IdleDecision::EndForRoom,
            (_, true) if idle_timeouts.is_idle(quiet) => IdleDecision::ForgetForRoom,
            _ => IdleDecision::Keep,
        }
    }
}
