// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/stall.rs`.

use crate::proto::{
    keepalive::KeepaliveLimit,
    stall::{QueueSnapshot, Stall},
    SECOND,
};

const START: u64 = 1000;

/// Checks a connection each second, until the peer counts as one that takes nothing. `state`
/// returns the number of times up, the oldest message and the number of frames after a number of
/// checks. Returns the number of checks before that, at most 300.
fn seconds(secs: u32, state: impl Fn(u64) -> (u64, Option<u64>, u32)) -> u64 {
    let limit = KeepaliveLimit::new(secs);
    let mut stall = Stall::new();
    let is_seen = |second: &u64| {
        let (times_up, oldest, arrived) = state(*second);
        let snapshot = QueueSnapshot {
            times_up,
            oldest,
            arrived,
        };
        stall.check(&snapshot, (START + second) * SECOND, limit)
    };
    (0..300).find(is_seen).unwrap_or(300)
}

#[test]
fn a_peer_that_lives_has_to_take_the_oldest_message() {
    for (secs, most) in [(4, 4), (30, 30), (60, 60), (0, 30)] {
        assert_eq!(seconds(secs, |second| (1, Some(7), second as u32)), most);
    }
}

#[test]
fn any_progress_begins_the_time_again() {
    assert_eq!(seconds(30, |s| (1, Some(s / 25), s as u32)), 300);
    // Nothing waits for a moment.
    assert_eq!(
        seconds(30, |s| (1, Some(7).filter(|_| s % 25 > 0), s as u32)),
        300
    );
    assert_eq!(seconds(30, |s| (s / 25, Some(7), s as u32)), 300);
    assert_eq!(seconds(30, |s| (1, Some(s.min(50)), s as u32)), 80);
}

/// Then it may have had no reason to acknowledge, and the keepalive is one.
#[test]
fn a_peer_that_is_silent_is_left_to_the_keepalive() {
    assert_eq!(seconds(30, |_| (1, Some(7), 5)), 300);
    // A last frame, which it sent before the message came.
    assert_eq!(seconds(30, |s| (1, Some(7), s.min(2) as u32)), 300);
    assert_eq!(seconds(30, |s| (1, Some(7), s.min(15) as u32)), 30);
    assert_eq!(seconds(30, |s| (1, Some(7), (s / 100) as u32)), 100);
}

#[test]
fn it_is_reported_once_and_its_time_is_shown() {
    let limit = KeepaliveLimit::new(30);
    let mut stall = Stall::new();
    let mut check = |second: u64, oldest| {
        let snapshot = QueueSnapshot {
            times_up: 1,
            oldest: Some(oldest),
            arrived: second as u32,
        };
        let is_seen = stall.check(&snapshot, (START + second) * SECOND, limit);
        (is_seen, stall.time() / SECOND)
    };
    let seen: Vec<_> = (0..=40).map(|second| check(second, 7)).collect();
    assert_eq!(seen[29..=31], [(false, 0), (true, 30), (false, 31)]);
    assert!(seen[31..].iter().all(|(is_seen, _)| !is_seen));
    // The oldest message is taken, and the next one is not.
    assert_eq!(check(41, 8), (false, 0));
    let seen: Vec<_> = (42..=80).map(|second| check(second, 8)).collect();
    assert_eq!(seen.iter().filter(|(is_seen, _)| *is_seen).count(), 1);
}

/// A host that was suspended could not receive.
#[test]
fn a_late_check_counts_little() {
    let limit = KeepaliveLimit::new(30);
    let mut stall = Stall::new();
    for (second, arrived) in [(0, 1), (3600, 2), (7200, 3)] {
        let snapshot = QueueSnapshot {
            times_up: 1,
            oldest: Some(7),
            arrived,
        };
        assert!(!stall.check(&snapshot, (START + second) * SECOND, limit));
    }
}
