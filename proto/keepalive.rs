// SPDX-License-Identifier: GPL-2.0

//! When a peer that does not answer is given up though the connection to it is up.
//!
//! A queue pair can live while nobody is behind it: the peer's host hangs, has no receive posted, or its TCP
//! takes nothing. Then what was sent is never acknowledged. A message costs nothing here: every now and then
//! somebody looks at each connection that waits for its peer, and compares how many frames have arrived with
//! what the last look saw.
//!
//! That nothing comes is no fault: a peer acknowledges when it is asked to. So it is asked first, by a message
//! to nobody behind all others, and has as long to answer as it was quiet before. It needs no program for
//! that. But the message may be behind many others on a way that is slow: as long as the device has not
//! taken it, each report of sends that are done gives the peer its time again. From then on only an answer counts, as the
//! device of a host that hangs goes on taking what it has receives for.
//!
//! Where a device is at an operation on the peer's memory nothing need be done for long. Such an
//! operation has a limit of its own, so for that much longer nobody is given up. Nor is a peer that
//! may be at such operations on memory of ours: its answer stands behind those that its device has.
//! They take as long as the port needs for what all peers may have posted; of a device that is a
//! program nobody knows that.
//!
//! A connection that is given up is made anew, and all that was not acknowledged is sent again. So to be wrong
//! costs time, and no message. But a way that is too slow for what waits would never bring it: so a peer that was
//! given up gets twice the time, and so on, until a message gets through, either way. That nothing waits is not enough:
//! who only receives waits for nothing until the message that is too slow begins anew.

use super::SECOND;

/// The shortest limit, in seconds: a peer that has no memory to receive says so each second.
const SHORTEST_SECS: u32 = 4;

/// The longest time from one look to the next, in milliseconds: as soon a change of the limit counts.
const LONGEST_PERIOD_MS: u32 = 4000;

/// How long nothing at all need be done while an operation is under way, in nanoseconds: more than the two
/// minutes that it may take, unless `net.rds.ib.completion_timeout_secs` says otherwise.
const OPERATION: u64 = 150 * SECOND;

/// What a peer's device may have to do on memory of ours, in bytes: with the settings there are at
/// first C RDS posts 256 operations of 1 MiB, and we post 126.
const POSTED: u64 = 256 << 20;

/// The shortest time that operations of peers get, in nanoseconds: a little less than [`POSTED`]
/// takes on a port of 1 Gbit/s.
const SHORTEST_OPERATIONS: u64 = 2 * SECOND;

/// The time for which the answers of `peers` may be behind their operations on memory of ours, in
/// nanoseconds, if they share a port that takes `mbits` in a second. 0: nobody knows how much it
/// takes.
///
/// The peer's port, which we do not know, may be slower, and busy with operations on the memory of others. Down to
/// 100 Mbit/s that needs no more than the usual limit, and gets its time by doublings where that is shorter.
pub(crate) fn time_for_operations(mbits: u32, peers: usize) -> u64 {
    // A bit at one megabit a second takes a microsecond.
    let microseconds = POSTED.saturating_mul(8).saturating_mul(peers as u64);
    microseconds
        .saturating_mul(1000)
        .checked_div(u64::from(mbits))
        .map_or(OPERATION, |time| time.clamp(SHORTEST_OPERATIONS, OPERATION))
}

/// How often the limit doubles at the most.
const MOST_DOUBLINGS: u32 = 6;

/// How long a peer may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepaliveLimit {
    /// In seconds; 0: for ever.
    secs: u32,
}

impl KeepaliveLimit {
    /// A peer may be silent for `secs` seconds, and for four if that is less; 0: for ever.
    pub(crate) const fn new(secs: u32) -> Self {
        let secs = match secs {
            0 => 0,
            1..SHORTEST_SECS => SHORTEST_SECS,
            secs => secs,
        };
        Self { secs }
    }

    /// The time from one look to the next, in milliseconds: an eighth of the limit as it is at first.
    pub(crate) fn period_ms(self) -> u32 {
        match self.secs {
            0 => LONGEST_PERIOD_MS,
            secs => secs.saturating_mul(125).min(LONGEST_PERIOD_MS),
        }
    }

    /// How long a peer that was given up `failures` times since a message got through may be quiet before it is asked,
    /// and then until it answers, in nanoseconds.
    fn half(self, failures: u32) -> u64 {
        u64::from(self.secs)
            .saturating_mul(SECOND / 2)
            .saturating_mul(1 << failures.min(MOST_DOUBLINGS))
    }
}

/// What tells whether the peer lives, since the connection came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkActivity {
    /// Frames that have arrived, modulo 2^32.
    pub(crate) arrived: u32,
    /// Nothing can arrive, as we have no memory to receive.
    pub(crate) rx_stalled: bool,
    /// Sends that the device was given.
    pub(crate) given: u64,
    /// Those that it has done.
    pub(crate) done: u64,
    /// It is at an operation on the peer's memory.
    pub(crate) operates: bool,
    /// It lets peers use memory of programs of this node, and the peer may be at operations on that.
    pub(crate) offers: bool,
    /// The time for which that may keep its answer, in nanoseconds.
    pub(crate) offers_for: u64,
}

/// What a look at a connection that is up sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkSnapshot {
    /// How often the connection came up.
    pub(crate) times_up: u64,
    pub(crate) through: Through,
    /// Messages wait to be sent or to be acknowledged, or one has arrived in part.
    pub(crate) waits: bool,
    /// The first message that was not given to the device.
    pub(crate) unsent: Option<u64>,
    pub(crate) activity: LinkActivity,
}

/// How many messages have got through, in sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Through {
    /// The last that the peer has acknowledged.
    pub(crate) acked: u64,
    /// The one that is expected next.
    pub(crate) next_rx: u64,
}

/// What to do about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepaliveDecision {
    /// Nothing.
    Keep,
    /// Ask the peer for an answer, and note that with [`Keepalive::asked`].
    Ask,
    /// Give it up.
    GiveUp,
}

/// How far the question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Unasked,
    /// It is queued, and has this number at the most.
    Queued(u64),
    /// The device has it, and has done it when so many sends are done.
    Given(u64),
    /// The peer's device has it.
    Taken,
}

impl Stage {
    /// The time for which the question or its answer may be behind operations, in nanoseconds.
    fn may_be_behind_operations(self, snapshot: &LinkSnapshot) -> u64 {
        let asks = matches!(self, Self::Queued(_) | Self::Given(_));
        if asks && snapshot.activity.operates {
            OPERATION
        } else if self != Self::Unasked && snapshot.activity.offers {
            snapshot.activity.offers_for
        } else {
            0
        }
    }
}

/// What the looks at a connection have in common.
#[derive(Clone, Debug)]
pub(crate) struct Keepalive {
    /// What had got through at the last look.
    through: Through,
    /// How often the peer was given up since that changed.
    failures: u32,
    quiet: QuietPeriod,
}

/// A time for which nothing has come.
#[derive(Clone, Debug)]
struct QuietPeriod {
    times_up: u64,
    arrived: u32,
    done: u64,
    /// There was something to wait for at the last look.
    waited: bool,
    /// When that was, in nanoseconds.
    last: u64,
    /// How long nothing has come, or the peer has had to answer, in nanoseconds.
    quiet: u64,
    stage: Stage,
}

impl Keepalive {
    /// A connection at which nobody has looked.
    pub(crate) fn new() -> Self {
        Self {
            through: Through::default(),
            failures: 0,
            quiet: QuietPeriod::new(),
        }
    }

    /// The peer was asked: the question has the number `sequence`, or less.
    pub(crate) fn asked(&mut self, sequence: u64) {
        self.quiet.stage = Stage::Queued(sequence);
        self.quiet.quiet = 0;
    }

    /// Nothing waits, or there is no link: what was heard until now does not count.
    pub(crate) fn pause(&mut self) {
        self.quiet = QuietPeriod::new();
    }

    /// Looks at the connection, `now` by a monotonic clock in nanoseconds.
    pub(crate) fn check(
        &mut self,
        snapshot: &LinkSnapshot,
        now: u64,
        limit: KeepaliveLimit,
    ) -> KeepaliveDecision {
        if core::mem::replace(&mut self.through, snapshot.through) != snapshot.through {
            self.failures = 0;
        }
        let decision = self.quiet.check(snapshot, now, limit, self.failures);
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
            stage: Stage::Unasked,
        }
    }

    fn check(
        &mut self,
        snapshot: &LinkSnapshot,
        now: u64,
        limit: KeepaliveLimit,
        failures: u32,
    ) -> KeepaliveDecision {
        // A machine that was stopped has not listened. So no more counts than for a look that is late.
        let most = u64::from(limit.period_ms()).saturating_mul(2_000_000);
        let passed = now.saturating_sub(self.last).min(most);
        let heard = (self.times_up, self.arrived) != (snapshot.times_up, snapshot.activity.arrived);
        let waits = snapshot.waits && !snapshot.activity.rx_stalled && limit.secs > 0;
        if heard || !waits || !self.waited {
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
        if self.quiet < limit.half(failures) {
            return KeepaliveDecision::Keep;
        }
        if self.stage == Stage::Unasked {
            return KeepaliveDecision::Ask;
        }
        if self.quiet < self.stage.may_be_behind_operations(snapshot) {
            return KeepaliveDecision::Keep;
        }
        KeepaliveDecision::GiveUp
    }

    /// Follows the question on its way.
    fn follow(&mut self, snapshot: &LinkSnapshot, progress: bool) {
        if let Stage::Queued(sequence) = self.stage {
            if snapshot.unsent.is_none_or(|first| first > sequence) {
                self.stage = Stage::Given(snapshot.activity.given);
            }
        }
        if !progress || !matches!(self.stage, Stage::Queued(_) | Stage::Given(_)) {
            return;
        }
        self.quiet = 0;
        if let Stage::Given(place) = self.stage {
            if snapshot.activity.done >= place {
                self.stage = Stage::Taken;
            }
        }
    }
}
