// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/keepalive.rs`.

use crate::proto::{keepalive::*, SECOND};

/// Returns a snapshot in which the device has completed all sends and a message waits for its
/// acknowledgement.
fn waiting() -> LinkSnapshot {
    LinkSnapshot {
        times_up: 1,
        through: Through::default(),
        waits: true,
        unsent: None,
        activity: LinkActivity {
            arrived: 7,
            rx_stalled: false,
            given: 20,
            done: 20,
            operates: false,
            offers: false,
            offers_for: 150 * SECOND,
            asks: false,
            has_stopped: false,
        },
    }
}

/// A connection that is checked each second, for as long as a test takes.
struct Looks {
    keepalive: Keepalive,
    limit: KeepaliveLimit,
    seconds: u64,
}

impl Looks {
    fn new(secs: u32) -> Self {
        Looks {
            keepalive: Keepalive::new(),
            limit: KeepaliveLimit::new(secs),
            seconds: 1000,
        }
    }

    fn check(&mut self, snapshot: &LinkSnapshot) -> KeepaliveDecision {
        self.seconds += 1;
        let now = self.seconds * SECOND;
        self.keepalive.check(snapshot, now, self.limit)
    }

    /// Checks until a decision other than `Keep`, at most `most` times. `change` returns the
    /// snapshot after a number of checks. Returns the decision and the number of checks before it.
    fn until(
        &mut self,
        most: u32,
        mut change: impl FnMut(u32) -> LinkSnapshot,
    ) -> (KeepaliveDecision, u32) {
        for count in 0..most {
            match self.check(&change(count)) {
                Keep => {}
                decision => return (decision, count),
            }
        }
        (Keep, most)
    }

    /// Returns a connection whose peer got a probe, with sequence 50, and has not answered.
    fn asked(secs: u32) -> Self {
        let mut looks = Self::new(secs);
        let (decision, _) = looks.until(9999, |_| waiting());
        assert_eq!(decision, Send);
        looks.keepalive.note_queued(50);
        looks
    }
}

use KeepaliveDecision::*;

#[test]
fn a_silent_peer_is_probed_and_then_given_up() {
    for (secs, half) in [(30, 15), (4, 2), (60, 30), (3600, 1800)] {
        let mut looks = Looks::new(secs);
        assert_eq!(looks.until(9999, |_| waiting()), (Send, half));
        looks.keepalive.note_queued(50);
        // The first of these checks is one second after the probe.
        assert_eq!(looks.until(9999, |_| waiting()), (GiveUp, half - 1));
        // The peer is given up once. Then all starts over with twice the time.
        assert_eq!(looks.until(9999, |_| waiting()), (Send, 2 * half));
    }
}

/// If a path takes longer than the limit, and each connection began with the same limit, no message
/// would ever arrive. Between two connections, a node that only receives sees that nothing waits.
#[test]
fn a_peer_that_needs_longer_gets_it() {
    for sees_nothing_between in [false, true] {
        let mut looks = Looks::new(30);
        let (mut failures, mut since) = (0, 0);
        while since < 100 {
            since += 1;
            let snapshot = LinkSnapshot {
                times_up: failures,
                waits: since > 2 || !sees_nothing_between,
                ..waiting()
            };
            if !snapshot.waits {
                looks.keepalive.pause();
            }
            match looks.check(&snapshot) {
                Keep => {}
                Send => looks.keepalive.note_queued(50),
                GiveUp => (failures, since) = (failures + 1, 0),
            }
            assert!(failures <= 3);
        }
        assert_eq!(failures, 2);
    }
}

#[test]
fn a_message_that_gets_through_either_way_ends_that() {
    for (acked, next_rx) in [(1, 0), (0, 2)] {
        let mut looks = Looks::asked(30);
        assert_eq!(looks.until(9999, |_| waiting()), (GiveUp, 14));
        assert_eq!(looks.until(9999, |_| waiting()), (Send, 30));
        let through = LinkSnapshot {
            through: Through { acked, next_rx },
            ..waiting()
        };
        // Half of the usual limit has passed already.
        assert_eq!(looks.until(9999, |_| through), (Send, 0));
        looks.keepalive.note_queued(50);
        assert_eq!(looks.until(9999, |_| through), (GiveUp, 14));
    }
}

/// The growth is limited: 32 minutes for the usual limit.
#[test]
fn the_time_of_a_peer_is_bounded() {
    let mut looks = Looks::new(30);
    for failures in 0..9 {
        let half = 15 << failures.min(6);
        assert_eq!(looks.until(9999, |_| waiting()), (Send, half));
        looks.keepalive.note_queued(50);
        assert_eq!(looks.until(9999, |_| waiting()), (GiveUp, half - 1));
    }
}

#[test]
fn zero_is_for_ever() {
    assert_eq!(Looks::new(0).until(9999, |_| waiting()), (Keep, 9999));
    let mut looks = Looks::asked(30);
    looks.limit = KeepaliveLimit::new(0);
    assert_eq!(looks.until(9999, |_| waiting()), (Keep, 9999));
}

#[test]
fn a_short_limit_is_four_seconds() {
    for secs in 1..4 {
        assert_eq!(KeepaliveLimit::new(secs), KeepaliveLimit::new(4));
    }
    assert_ne!(KeepaliveLimit::new(5), KeepaliveLimit::new(4));
}

#[test]
fn there_are_eight_checks_and_one_in_four_seconds() {
    for (secs, period_ms) in [
        (0, 4000),
        (1, 500),
        (4, 500),
        (30, 3750),
        (32, 4000),
        (3600, 4000),
    ] {
        assert_eq!(KeepaliveLimit::new(secs).period_ms(), period_ms);
    }
}

#[test]
fn nothing_is_asked_while_nothing_waits() {
    let idle = LinkSnapshot {
        waits: false,
        ..waiting()
    };
    let mut looks = Looks::new(30);
    assert_eq!(looks.until(100, |_| idle), (Keep, 100));
    // The time before does not count.
    assert_eq!(looks.until(100, |_| waiting()), (Send, 15));
}

/// Any header is enough, at any time, and so is another link.
#[test]
fn any_arrival_restarts_the_timeout() {
    for change in [
        |snapshot: &mut LinkSnapshot| snapshot.activity.arrived += 1,
        |snapshot: &mut LinkSnapshot| snapshot.activity.arrived = 0,
        |snapshot: &mut LinkSnapshot| snapshot.times_up += 1,
    ] {
        let mut changed = waiting();
        change(&mut changed);
        let mut looks = Looks::new(30);
        assert_eq!(looks.until(14, |_| waiting()), (Keep, 14));
        assert_eq!(looks.until(100, |_| changed), (Send, 15));
        let mut looks = Looks::asked(30);
        assert_eq!(looks.until(14, |_| waiting()), (Keep, 14));
        assert_eq!(looks.until(100, |_| changed), (Send, 15));
    }
    let often = |count| LinkSnapshot {
        activity: LinkActivity {
            arrived: u32::MAX.wrapping_add(count / 14),
            ..waiting().activity
        },
        ..waiting()
    };
    assert_eq!(Looks::new(30).until(9999, often), (Keep, 9999));
}

/// Without receive memory this node is the one that does not listen.
#[test]
fn a_stalled_receiver_gives_no_peer_up() {
    let rx_stalled = LinkSnapshot {
        activity: LinkActivity {
            rx_stalled: true,
            ..waiting().activity
        },
        ..waiting()
    };
    assert_eq!(Looks::new(30).until(999, |_| rx_stalled), (Keep, 999));
    let mut looks = Looks::asked(30);
    assert_eq!(looks.until(999, |_| rx_stalled), (Keep, 999));
    assert_eq!(looks.until(999, |_| waiting()), (Send, 15));
}

/// A host that was stopped, or had no time to check, cannot have heard the peer.
#[test]
fn missed_checks_do_not_count() {
    let mut looks = Looks::new(30);
    assert_eq!(looks.check(&waiting()), Keep);
    looks.seconds += 9999;
    assert_eq!(looks.check(&waiting()), Keep);
    let mut looks = Looks::asked(30);
    looks.seconds += 9999;
    assert_eq!(looks.check(&waiting()), Keep);
    // A check counts for at most two periods, 7.5 seconds.
    assert_eq!(looks.until(99, |_| waiting()), (GiveUp, 7));
    // A clock that goes backwards does not matter.
    let mut looks = Looks::asked(30);
    looks.seconds -= 500;
    assert_eq!(looks.until(99, |_| waiting()), (GiveUp, 15));
}

/// Many frames precede the probe on a slow path.
#[test]
fn a_peer_that_takes_earlier_messages_is_not_given_up() {
    let queued = |count: u32| LinkSnapshot {
        unsent: Some(50),
        activity: LinkActivity {
            given: 120 + u64::from(count / 10),
            done: u64::from(count / 10),
            ..waiting().activity
        },
        ..waiting()
    };
    assert_eq!(Looks::asked(30).until(9999, queued), (Keep, 9999));
    // The probe is with the device, behind 100 other sends.
    let given = |count: u32| LinkSnapshot {
        activity: LinkActivity {
            given: 120 + u64::from(count / 10),
            done: 20 + u64::from(count / 10),
            ..waiting().activity
        },
        ..waiting()
    };
    let mut looks = Looks::asked(30);
    // The device completes the 100th at check 1000, and the peer has 15 seconds from then on.
    assert_eq!(looks.until(9999, given), (GiveUp, 1015));
}

#[test]
fn a_peer_that_accepts_nothing_is_given_up() {
    for (unsent, given, done) in [
        (Some(50), 120, 20),
        (Some(3), 120, 20),
        (None, 120, 20),
        (Some(51), 120, 20),
    ] {
        let stuck = LinkSnapshot {
            unsent,
            activity: LinkActivity {
                given,
                done,
                ..waiting().activity
            },
            ..waiting()
        };
        assert_eq!(Looks::asked(30).until(9999, |_| stuck), (GiveUp, 14));
    }
}

/// The device of a hanging host still accepts what follows the probe, as long as it has receives.
#[test]
fn progress_after_the_keepalive_is_no_answer() {
    // One send each second; every 16th is signaled.
    let drip = |count: u32| LinkSnapshot {
        activity: LinkActivity {
            given: u64::from(21 + count),
            done: u64::from((21 + count) / 16 * 16),
            ..waiting().activity
        },
        ..waiting()
    };
    let (decision, count) = Looks::asked(30).until(9999, drip);
    assert_eq!(decision, GiveUp);
    assert!((14..=16 + 15).contains(&count), "{count}");
}

/// An operation has its own limit.
#[test]
fn an_operation_may_take_longer_than_its_own_limit() {
    let before = LinkSnapshot {
        activity: LinkActivity {
            given: 120,
            operates: true,
            ..waiting().activity
        },
        ..waiting()
    };
    let (decision, count) = Looks::asked(30).until(9999, |_| before);
    assert_eq!(decision, GiveUp);
    assert!((125..=155).contains(&count), "{count}");
    // Not if the peer's device has taken the probe before an operation is posted.
    let mut looks = Looks::asked(30);
    let idle = LinkSnapshot {
        activity: LinkActivity {
            operates: false,
            ..before.activity
        },
        ..before
    };
    assert_eq!(looks.check(&idle), Keep);
    let taken = |_| LinkSnapshot {
        activity: LinkActivity {
            given: 130,
            done: 125,
            ..before.activity
        },
        ..before
    };
    assert_eq!(looks.until(9999, taken), (GiveUp, 15));
    // A longer limit still applies.
    assert_eq!(Looks::asked(3600).until(9999, |_| before), (GiveUp, 1799));
}

/// The answer may be queued behind operations of the peer, which this node does not see.
#[test]
fn a_peer_with_access_to_memory_gets_the_time_of_an_operation() {
    // The probe is queued, posted to the device, or received by the peer's device.
    for (unsent, given, done) in [(Some(3), 120, 20), (None, 120, 20), (None, 21, 21)] {
        let offers = LinkSnapshot {
            unsent,
            activity: LinkActivity {
                given,
                done,
                offers: true,
                ..waiting().activity
            },
            ..waiting()
        };
        let asked = || {
            let mut looks = Looks::asked(30);
            let before = LinkSnapshot {
                activity: LinkActivity {
                    done: 20,
                    ..offers.activity
                },
                ..offers
            };
            assert_eq!(looks.check(&before), Keep);
            looks
        };
        let mut looks = asked();
        let (decision, count) = looks.until(9999, |_| offers);
        assert_eq!(decision, GiveUp);
        assert!((125..=155).contains(&count), "{count}");
        // Such a peer gets its probe as soon as others.
        assert_eq!(looks.until(9999, |_| offers), (Send, 30));
        // The extra time applies only while the peer may access memory.
        let mut looks = asked();
        assert_eq!(looks.until(60, |_| offers), (Keep, 60));
        let stuck = LinkSnapshot {
            activity: LinkActivity {
                offers: false,
                ..offers.activity
            },
            ..offers
        };
        assert_eq!(looks.until(9999, |_| stuck), (GiveUp, 0));
    }
    let long = LinkSnapshot {
        activity: LinkActivity {
            offers: true,
            ..waiting().activity
        },
        ..waiting()
    };
    assert_eq!(Looks::asked(3600).until(9999, |_| long), (GiveUp, 1799));
}

/// A hanging host is detected as soon as without memory for peers, unless its operations may take
/// longer.
#[test]
fn the_time_for_operations_of_peers_depends_on_the_port() {
    for (mbits, peers, secs) in [
        (100_000, 1, 30),
        (10_000, 50, 30),
        (100_000, 2000, 15 + 43),
        (10_000, 10_000, 15 + 150),
        (0, 1, 15 + 150),
    ] {
        let offers = LinkSnapshot {
            activity: LinkActivity {
                offers: true,
                offers_for: time_for_operations(mbits, peers),
                ..waiting().activity
            },
            ..waiting()
        };
        let mut looks = Looks::new(30);
        let (decision, asked) = looks.until(9999, |_| offers);
        assert_eq!(decision, Send);
        looks.keepalive.note_queued(50);
        let (decision, answered) = looks.until(9999, |_| offers);
        assert_eq!(
            (decision, asked + answered + 1),
            (GiveUp, secs),
            "{mbits} {peers}"
        );
    }
}

/// The peer's port may be slower than the local one of 100 Gbit/s. Its operations, from the
/// beginning of a connection on, take 3 s at 1 Gbit/s and 22 s at 100 Mbit/s.
#[test]
fn a_peer_with_a_slower_port_is_given_up_only_with_a_short_timeout() {
    for (limit, needs, times) in [(30, 3, 0), (30, 22, 0), (4, 3, 0), (4, 22, 3)] {
        let mut looks = Looks::new(limit);
        let (mut failures, mut since) = (0, 0);
        while since < needs {
            since += 1;
            let snapshot = LinkSnapshot {
                times_up: failures,
                activity: LinkActivity {
                    offers: true,
                    offers_for: time_for_operations(100_000, 1),
                    ..waiting().activity
                },
                ..waiting()
            };
            match looks.check(&snapshot) {
                Keep => {}
                Send => looks.keepalive.note_queued(50),
                GiveUp => (failures, since) = (failures + 1, 0),
            }
        }
        assert_eq!(failures, times, "{limit} {needs}");
    }
}

#[test]
fn the_time_for_operations_has_bounds() {
    assert_eq!(time_for_operations(400_000, 0), 2 * SECOND);
    assert_eq!(time_for_operations(u32::MAX, 1), 2 * SECOND);
    assert_eq!(time_for_operations(1000, 1), 2_147_483_648);
    assert_eq!(time_for_operations(1, usize::MAX), 150 * SECOND);
    // A local operation has its own limit, regardless of the port.
    let operates = LinkSnapshot {
        activity: LinkActivity {
            given: 120,
            operates: true,
            offers: true,
            offers_for: 2 * SECOND,
            ..waiting().activity
        },
        ..waiting()
    };
    let (decision, count) = Looks::asked(30).until(9999, |_| operates);
    assert_eq!((decision, count / 10), (GiveUp, 14));
}

#[test]
fn a_transport_that_asks_itself_sends_no_keepalive() {
    let silent = || {
        let mut snapshot = waiting();
        snapshot.activity.asks = true;
        snapshot
    };
    let mut looks = Looks::new(30);
    assert_eq!(looks.until(100, |_| silent()), (GiveUp, 30));
    // The next link has twice the time.
    let again = || LinkSnapshot {
        times_up: 2,
        ..silent()
    };
    assert_eq!(looks.until(100, |_| again()), (GiveUp, 60));
}

#[test]
fn a_peer_that_stops_within_a_message_is_given_up() {
    let mut snapshot = waiting();
    snapshot.activity.asks = true;
    snapshot.activity.has_stopped = true;
    // Not even without a limit on the silence.
    assert_eq!(Looks::new(0).check(&snapshot), GiveUp);
    // A frame that has arrived in part is not known to the connection, for which nothing waits.
    snapshot.waits = false;
    assert_eq!(Looks::new(30).check(&snapshot), GiveUp);
}
