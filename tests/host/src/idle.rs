// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/idle.rs`.

use crate::proto::{idle::*, SECOND};

/// Returns a snapshot of a connection that is up and has carried messages.
fn up() -> IdleSnapshot {
    IdleSnapshot {
        marks: IdleProgress::new(5, 9, 1, true),
        up: true,
        down: false,
        pending: false,
        for_peer: false,
        ack_due: false,
        offers: false,
        unused: false,
        is_rds_rust: true,
    }
}

/// Returns the same connection, down.
fn down() -> IdleSnapshot {
    IdleSnapshot {
        up: false,
        down: true,
        is_rds_rust: false,
        ..up()
    }
}

/// Returns a snapshot of a connection that was never up.
fn unused() -> IdleSnapshot {
    IdleSnapshot {
        unused: true,
        marks: IdleProgress::new(2, 1, 0, true),
        ..down()
    }
}

/// Returns the decisions of checks at these times in seconds.
fn looks<const N: usize>(idle_secs: u32, looks: [(u64, IdleSnapshot); N]) -> [IdleDecision; N] {
    let mut idleness = IdleTracker::new();
    let idle_timeouts = IdleTimeouts::new(idle_secs);
    looks.map(|(time, snapshot)| idleness.check(&snapshot, (1000 + time) * SECOND, idle_timeouts))
}

/// Returns after each check whether the peer is known to have the acknowledgement.
fn settled<const N: usize>(idle_secs: u32, looks: [(u64, IdleSnapshot); N]) -> [bool; N] {
    let mut idleness = IdleTracker::new();
    let idle_timeouts = IdleTimeouts::new(idle_secs);
    looks.map(|(time, snapshot)| {
        let _ = idleness.check(&snapshot, (1000 + time) * SECOND, idle_timeouts);
        idleness.is_settled()
    })
}

use IdleDecision::*;

#[test]
fn an_idle_connection_acknowledges_and_is_closed() {
    let found = looks(600, [0, 15, 30, 599, 600, 615].map(|time| (time, up())));
    assert_eq!(found, [Keep, Acknowledge, Keep, Keep, Close, Close]);
}

/// A peer that may lack the acknowledgement may send its last messages once more.
#[test]
fn a_connection_with_a_due_acknowledgement_is_not_settled() {
    let stuck = IdleSnapshot {
        ack_due: true,
        ..up()
    };
    let times = [(0, up()), (1, up()), (2, stuck), (9, stuck), (10, down())];
    assert_eq!(settled(2, times), [false; 5]);
    let times = [(0, up()), (1, stuck), (2, up()), (3, down())];
    assert_eq!(looks(2, times), [Keep, Keep, Acknowledge, ForgetForRoom]);
    assert_eq!(settled(2, times), [false; 4]);
    let times = [(0, up()), (1, up()), (2, stuck), (3, up()), (4, up())];
    assert_eq!(
        looks(2, times),
        [Keep, Acknowledge, Keep, Acknowledge, Close]
    );
    // A queue pair that cannot deliver fails within five seconds. Checks may follow sooner.
    let times = [(0, up()), (1, up()), (5, up()), (6, down())];
    assert_eq!(looks(2, times)[..2], [Keep, Acknowledge]);
    assert_eq!(settled(2, times), [false; 4]);
    let times = [(0, up()), (1, up()), (6, up()), (7, down())];
    assert_eq!(settled(2, times), [false, false, true, true]);
}

#[test]
fn a_message_or_a_reconnect_starts_over() {
    for change in [
        |marks: &mut IdleProgress| marks.next_tx += 1,
        |marks: &mut IdleProgress| marks.next_rx += 1,
        |marks: &mut IdleProgress| marks.next_rx = 1,
        |marks: &mut IdleProgress| marks.times_up += 1,
    ] {
        let mut changed = up();
        change(&mut changed.marks);
        let mut idleness = IdleTracker::new();
        let _ = idleness.check(&up(), SECOND, IdleTimeouts::new(2));
        assert!(idleness.is_about(&up().marks) && !idleness.is_about(&changed.marks));
        let times = [(0, up()), (15, up()), (600, changed), (1199, changed)];
        assert_eq!(looks(600, times), [Keep, Acknowledge, Keep, Acknowledge]);
        let times = [(0, up()), (600, changed), (615, changed), (1200, changed)];
        assert_eq!(looks(600, times), [Keep, Keep, Acknowledge, Close]);
    }
}

#[test]
fn pending_work_keeps_a_connection() {
    for snapshot in [up(), down(), unused()] {
        let pending = IdleSnapshot {
            pending: true,
            ..snapshot
        };
        let found = looks(2, [(0, pending), (2, pending), (9, pending)]);
        assert!(found.iter().all(|x| [Keep, Acknowledge].contains(x)));
    }
}

/// Anybody can accept a connection over TCP once a minute. That keeps it only after a message.
#[test]
fn a_stranger_that_comes_up_again_and_again_is_idle() {
    let comes_up = |has_answered| {
        let mut times_up = 0;
        looks(
            600,
            [0, 15, 75, 135, 540, 600, 615].map(|time| {
                times_up += 1;
                let marks = IdleProgress::new(2, 1, times_up, has_answered);
                let is_rds_rust = false;
                (
                    time,
                    IdleSnapshot {
                        marks,
                        is_rds_rust,
                        ..up()
                    },
                )
            }),
        )
    };
    assert_eq!(
        comes_up(false),
        [Keep, Acknowledge, Keep, Keep, Keep, EndForRoom, EndForRoom]
    );
    assert_eq!(comes_up(true), [Keep; 7]);
}

/// C RDS would reconnect at once. Such a peer also gets the acknowledgement.
#[test]
fn other_peers_are_closed_only_for_room() {
    let other = IdleSnapshot {
        is_rds_rust: false,
        ..up()
    };
    let times = [
        (0, other),
        (5, other),
        (10, other),
        (599, other),
        (600, other),
        (901, down()),
    ];
    let expected = [Keep, Acknowledge, Keep, Keep, EndForRoom, ForgetForRoom];
    assert_eq!(looks(600, times), expected);
    // The connection must be settled.
    let times = [(0, other), (601, other), (606, other)];
    assert_eq!(looks(600, times), [Keep, Acknowledge, EndForRoom]);
}

/// The peer may be accessing memory at any time.
#[test]
fn a_peer_with_access_to_memory_is_closed_only_for_room() {
    let offers = IdleSnapshot {
        offers: true,
        ..up()
    };
    let times = [(0, offers), (15, offers), (599, offers), (600, offers)];
    assert_eq!(looks(600, times), [Keep, Acknowledge, Keep, EndForRoom]);
    let times = [(0, offers), (15, offers), (600, up())];
    assert_eq!(looks(600, times), [Keep, Acknowledge, Close]);
    let offers = IdleSnapshot {
        offers: true,
        ..unused()
    };
    assert_eq!(looks(600, [(0, offers), (60, offers)]), [Keep, Forget]);
}

#[test]
fn an_unused_connection_is_forgotten_after_a_minute() {
    for (idle_secs, wait) in [(0, 60), (600, 60), (60, 60), (2, 2)] {
        let times = [(0, unused()), (wait - 1, unused()), (wait, unused())];
        assert_eq!(looks(idle_secs, times), [Keep, Keep, Forget]);
        let between = IdleSnapshot {
            down: false,
            ..unused()
        };
        assert_eq!(looks(idle_secs, [(0, between), (wait, between)]), [Keep; 2]);
    }
}

#[test]
fn the_position_is_forgotten_if_the_peer_has_the_acknowledgement() {
    let times = [
        (0, up()),
        (15, up()),
        (30, up()),
        (599, down()),
        (600, down()),
    ];
    let expected = [Keep, Acknowledge, Keep, Keep, ForgetForRoom];
    assert_eq!(looks(600, times), expected);
    assert_eq!(settled(600, times), [false, false, true, true, true]);
    // The link may have failed with the acknowledgement in transit.
    let broken = [
        (0, up()),
        (15, up()),
        (30, down()),
        (600, down()),
        (9999, down()),
    ];
    let expected = [Keep, Acknowledge, Keep, ForgetForRoom, ForgetForRoom];
    assert_eq!(looks(600, broken), expected);
    assert_eq!(settled(600, broken), [false; 5]);
    // A new link proves nothing about the old one.
    let mut again = up();
    again.marks.times_up = 2;
    let again = [
        (0, up()),
        (15, up()),
        (30, again),
        (45, down()),
        (9999, down()),
    ];
    assert_eq!(
        looks(600, again),
        [Keep, Acknowledge, Keep, Keep, ForgetForRoom]
    );
    assert_eq!(settled(600, again), [false; 5]);
}

#[test]
fn zero_is_for_ever() {
    let times = [
        (0, up()),
        (15, up()),
        (30, up()),
        (1 << 30, up()),
        (1 << 31, down()),
    ];
    assert_eq!(looks(0, times), [Keep, Acknowledge, Keep, Keep, Keep]);
}

#[test]
fn there_are_four_checks_in_the_shortest_time() {
    for (idle_secs, period_ms) in [
        (0, 15000),
        (1, 250),
        (2, 500),
        (59, 14750),
        (u32::MAX, 15000),
    ] {
        assert_eq!(IdleTimeouts::new(idle_secs).period_ms(), period_ms);
    }
}

/// A connection that only the peer may need stays until there is no room.
#[test]
fn a_connection_for_the_peer_is_forgotten_for_room() {
    let waits = |snapshot: IdleSnapshot| IdleSnapshot {
        down: false,
        for_peer: true,
        ..snapshot
    };
    let of_stranger = waits(unused());
    let decisions = looks(
        600,
        [(0, of_stranger), (59, of_stranger), (60, of_stranger)],
    );
    assert_eq!(decisions, [Keep, Keep, ForgetForRoom]);
    let lost = waits(down());
    let decisions = looks(600, [(0, lost), (599, lost), (600, lost)]);
    assert_eq!(decisions, [Keep, Keep, ForgetForRoom]);
    let pending = IdleSnapshot {
        pending: true,
        ..lost
    };
    assert_eq!(looks(600, [(0, pending), (600, pending)]), [Keep, Keep]);
}
