// SPDX-License-Identifier: GPL-2.0

//! Decides when a silent peer is given up although the connection to it is up.
//!
//! A queue pair can stay up without a responsive peer. The peer's host may hang, have no receive
//! posted, or its TCP may take nothing. Then sent messages are never acknowledged. Messages pay
//! nothing for the detection: a periodic check covers each connection that waits for its peer. It
//! compares the number of arrived frames with that of the previous check.
//!
//! Silence is no error by itself, because a peer acknowledges only on request. After half the limit
//! a keepalive is queued behind all messages. It is a message from port 0 to port 0, so the peer
//! acknowledges it without a program. The peer has the other half of the limit to answer. The
//! keepalive may be behind many others on a slow link. So until the device has completed it, each
//! send completion restarts the time. From then on only an answer counts, because the device of a
//! hung host still accepts messages while receives are posted.
//!
//! While the device processes an operation on the peer's memory, it need not complete anything for
//! a long time. Operations have a limit of their own, so the peer gets that much more time. The
//! same applies to a peer that may process operations on this node's memory, because its answer is
//! queued behind them. They take as long as the port needs for all that peers may have posted. For
//! a device implemented in software that time is unknown.
//!
//! A link that is given up is replaced, and all unacknowledged messages are sent again. So a wrong
//! decision costs time, but no message. But a link too slow for its messages would never deliver
//! them. So each time a peer is given up its limit doubles, until a message gets through in either
//! direction. An empty queue does not end this: a node that only receives has an empty queue until
//! the slow message begins again.

use super::SECOND;

/// Shortest limit. A peer without memory for receives reports that once per second.
const SHORTEST_SECS: u32 = 4;

/// Default limit.
const USUAL_SECS: u32 = 30;

/// Longest time between two checks. A changed limit takes effect within this time.
const LONGEST_PERIOD_MS: u32 = 4000;

/// Time for which a device need not complete anything during an operation. An operation may take
/// two minutes, unless `net.rds.ib.completion_timeout_secs` says otherwise.
const OPERATION_NS: u64 = 150 * SECOND;

/// Bytes that a peer's device may have to transfer for operations on this node's memory. With
/// default settings C RDS posts 256 operations of 1 MiB, and this module posts 126.
const POSTED: u64 = 256 << 20;

/// Shortest time for operations of peers. A port of 1 Gbit/s needs a little more for [`POSTED`].
const SHORTEST_OPERATIONS_NS: u64 = 2 * SECOND;

/// Returns the time in nanoseconds for which the answers of `peers` may be delayed by their
/// operations on this node's memory. The peers share a port of `mbits` Mbit/s; 0 if its speed is
/// unknown.
///
/// The peer's port, whose speed is unknown here, may be slower, or busy with operations on other
/// nodes. Down to 100 Mbit/s the usual limit covers that. A shorter limit doubles until it does.
pub(crate) fn time_for_operations(mbits: u32, peers: usize) -> u64 {
    // One bit takes one microsecond at 1 Mbit/s.
    let microseconds = POSTED.saturating_mul(8).saturating_mul(peers as u64);
    microseconds
        .saturating_mul(1000)
        .checked_div(u64::from(mbits))
        .map_or(OPERATION_NS, |time| {
            time.clamp(SHORTEST_OPERATIONS_NS, OPERATION_NS)
        })
}

/// Maximum number of doublings of the limit.
const MOST_DOUBLINGS: u32 = 6;

/// Limit on the silence of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepaliveLimit {
    /// 0: unlimited.
    secs: u32,
}

impl KeepaliveLimit {
    /// Creates a limit of `secs`, raised to [`SHORTEST_SECS`] if it is less. 0: unlimited.
    pub(crate) const fn new(secs: u32) -> Self {
        let secs = match secs {
            0 => 0,
            1..SHORTEST_SECS => SHORTEST_SECS,
            secs => secs,
        };
        Self { secs }
    }

    /// Returns the time between two checks: an eighth of the limit before any doubling.
    pub(crate) fn period_ms(self) -> u32 {
        match self.secs {
            0 => LONGEST_PERIOD_MS,
            secs => secs.saturating_mul(125).min(LONGEST_PERIOD_MS),
        }
    }

    /// Returns the time in nanoseconds in which a peer that lives has to take a message. Without a
    /// limit on its silence that of [`USUAL_SECS`] counts.
    pub(super) fn progress(self) -> u64 {
        let secs = match self.secs {
            0 => USUAL_SECS,
            secs => secs,
        };
        u64::from(secs).saturating_mul(SECOND)
    }

    /// Returns the time in nanoseconds between two checks, as far as it counts. A host that was
    /// suspended could not receive. So at most the time of one late check counts.
    pub(super) fn passed(self, last: u64, now: u64) -> u64 {
        let most = u64::from(self.period_ms()).saturating_mul(2_000_000);
        now.saturating_sub(last).min(most)
    }

    /// Returns the time in nanoseconds before a keepalive is sent, and again until the peer must
    /// answer. `failures` counts how often the peer was given up since a message got through.
    fn half(self, failures: u32) -> u64 {
        u64::from(self.secs)
            .saturating_mul(SECOND / 2)
            .saturating_mul(1 << failures.min(MOST_DOUBLINGS))
    }
}

/// Signs of activity since the connection came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkActivity {
    /// Frames that have arrived, modulo 2^32.
    pub(crate) arrived: u32,
    /// No frame can arrive, because this node has no memory for receives.
    pub(crate) rx_stalled: bool,
    /// Sends that were posted to the device.
    pub(crate) given: u64,
    /// Sends that the device has completed.
    pub(crate) done: u64,
    /// The device processes an operation on the peer's memory.
    pub(crate) operates: bool,
    /// The device lets peers use memory of programs of this node, and the peer may be doing so.
    pub(crate) offers: bool,
    /// Time in nanoseconds for which such use may delay the peer's answer.
    pub(crate) offers_for: u64,
    /// The transport itself asks a silent peer for an answer, so no keepalive is sent.
    pub(crate) asks: bool,
    /// The peer has left a message incomplete, or sent nothing at all, for too long.
    pub(crate) has_stopped: bool,
}

/// State of a connection that is up, as one check sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkSnapshot {
    /// Number of times that the connection came up.
    pub(crate) times_up: u64,
    pub(crate) through: Through,
    /// Messages wait to be sent or acknowledged, or one has arrived in part.
    pub(crate) waits: bool,
    /// Sequence number of the first message that was not posted to the device.
    pub(crate) unsent: Option<u64>,
    pub(crate) activity: LinkActivity,
}

/// Messages that have got through, in sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Through {
    /// Last message that the peer has acknowledged.
    pub(crate) acked: u64,
    /// Message that is expected next from the peer.
    pub(crate) next_rx: u64,
}

/// Result of a check of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepaliveDecision {
    /// No action.
    Keep,
    /// Send a keepalive, and note that with [`Keepalive::note_queued`].
    Send,
    /// Give the peer up.
    GiveUp,
}

/// Progress of the keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None was sent.
    NotSent,
    /// The keepalive is queued, with this sequence number or a lower one.
    Queued(u64),
    /// The keepalive was posted. It is completed when the device has completed this number of
    /// sends.
    Posted(u64),
    /// The device has completed the send: the peer's device has the keepalive.
    Completed,
}

impl Stage {
    /// Returns the time in nanoseconds for which operations may delay the keepalive or its answer.
    fn may_be_behind_operations(self, snapshot: &LinkSnapshot) -> u64 {
        let is_outstanding = matches!(self, Self::Queued(_) | Self::Posted(_));
        if is_outstanding && snapshot.activity.operates {
            OPERATION_NS
        } else if self != Self::NotSent && snapshot.activity.offers {
            snapshot.activity.offers_for
        } else {
            0
        }
    }
}

/// State that is kept between the checks of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Keepalive {
    /// Messages that had got through at the previous check.
    through: Through,
    /// Number of times that the peer was given up since `through` changed.
    failures: u32,
    quiet: QuietPeriod,
}

/// Period in which nothing has arrived.
#[derive(Clone, Debug)]
struct QuietPeriod {
    times_up: u64,
    arrived: u32,
    done: u64,
    /// The connection waited for the peer at the previous check.
    waited: bool,
    /// Time of the previous check, in nanoseconds.
    last: u64,
    /// Time in nanoseconds without an arrival, or since the peer has to answer.
    quiet: u64,
    stage: Stage,
}

impl Keepalive {
    /// Creates the state of a connection that was not checked yet.
    pub(crate) fn new() -> Self {
        Self {
            through: Through::default(),
            failures: 0,
            quiet: QuietPeriod::new(),
        }
    }

    /// Notes that a keepalive was queued, with the sequence number `sequence` or a lower one.
    pub(crate) fn note_queued(&mut self, sequence: u64) {
        self.quiet.stage = Stage::Queued(sequence);
        self.quiet.quiet = 0;
    }

    /// Notes that nothing waits or that there is no link, so earlier silence does not count.
    pub(crate) fn pause(&mut self) {
        self.quiet = QuietPeriod::new();
    }

    /// Checks the connection. `now` is a monotonic time in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: &LinkSnapshot,
        now: u64,
        limit: KeepaliveLimit,
    ) -> KeepaliveDecision {
        if core::mem::replace(&mut self.through, snapshot.through) != snapshot.through {
            self.failures = 0;
        }
        let decision = match snapshot.activity.has_stopped {
            true => KeepaliveDecision::GiveUp,
            false => self.quiet.check(snapshot, now, limit, self.failures),
        };
        if decision == KeepaliveDecision::GiveUp {
            self.failures = self.failures.saturating_add(1);
            self.pause();
        }
        decision
    }
}

impl QuietPeriod {
    const fn new() -> Self {
        Self {
            times_up: 0,
            arrived: 0,
            done: 0,
            waited: false,
            last: 0,
            quiet: 0,
            stage: Stage::NotSent,
        }
    }

    fn check(
        &mut self,
        snapshot: &LinkSnapshot,
        now: u64,
        limit: KeepaliveLimit,
        failures: u32,
    ) -> KeepaliveDecision {
        let passed = limit.passed(self.last, now);
        let has_arrived =
            (self.times_up, self.arrived) != (snapshot.times_up, snapshot.activity.arrived);
        let waits = snapshot.waits && !snapshot.activity.rx_stalled && limit.secs > 0;
        if has_arrived || !waits || !self.waited {
            *self = Self {
                times_up: snapshot.times_up,
                arrived: snapshot.activity.arrived,
                done: snapshot.activity.done,
                waited: waits,
                last: now,
                ..Self::new()
            };
            return KeepaliveDecision::Keep;
        }
        self.last = now;
        self.quiet = self.quiet.saturating_add(passed);
        let progress =
            core::mem::replace(&mut self.done, snapshot.activity.done) != snapshot.activity.done;
        self.follow(snapshot, progress);
        let half = limit.half(failures);
        if snapshot.activity.asks {
            return match self.quiet < half.saturating_mul(2) {
                true => KeepaliveDecision::Keep,
                false => KeepaliveDecision::GiveUp,
            };
        }
        if self.quiet < half {
            return KeepaliveDecision::Keep;
        }
        if self.stage == Stage::NotSent {
            return KeepaliveDecision::Send;
        }
        if self.quiet < self.stage.may_be_behind_operations(snapshot) {
            return KeepaliveDecision::Keep;
        }
        KeepaliveDecision::GiveUp
    }

    /// Updates the stage of the keepalive.
    fn follow(&mut self, snapshot: &LinkSnapshot, progress: bool) {
        if let Stage::Queued(sequence) = self.stage {
            if snapshot.unsent.is_none_or(|first| first > sequence) {
                self.stage = Stage::Posted(snapshot.activity.given);
            }
        }
        if !progress || !matches!(self.stage, Stage::Queued(_) | Stage::Posted(_)) {
            return;
        }
        self.quiet = 0;
        if let Stage::Posted(place) = self.stage {
            if snapshot.activity.done >= place {
                self.stage = Stage::Completed;
            }
        }
    }
}
