// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/completion_watchdog.rs`.

use crate::proto::{
    completion_watchdog::{WatchdogDecision::*, *},
    SECOND,
};

/// Returns a snapshot with `done` completed work requests, in which a completion is due.
fn due(done: u64) -> CqSnapshot {
    CqSnapshot { done, due: true }
}

/// Returns a snapshot in which no posted work request is signaled.
fn idle(done: u64) -> CqSnapshot {
    CqSnapshot { done, due: false }
}

/// Returns the decisions of checks at these times in seconds. The timeout is 80 s.
fn looks<const N: usize>(looks: [(u64, CqSnapshot); N]) -> [WatchdogDecision; N] {
    let mut watchdog = CompletionWatchdog::new();
    looks.map(|(time, snapshot)| {
        watchdog.check(snapshot, (1000 + time) * SECOND, WatchdogTimeout::new(80))
    })
}

#[test]
fn a_device_is_asked_once_and_then_given_up() {
    let times = [0, 9, 10, 11, 79, 80].map(|time| (time, due(3)));
    assert_eq!(looks(times), [Wait, Wait, Kick, Wait, Wait, GiveUp]);
}

#[test]
fn no_limit_is_never_over() {
    let mut watchdog = CompletionWatchdog::new();
    let never = WatchdogTimeout::new(0);
    for hour in 0..=100 {
        let now = hour * 3600 * SECOND;
        assert_eq!(watchdog.check(due(3), now, never), Wait);
    }
    // With a limit the time begins again.
    let mut later = |seconds: u64| {
        let now = (100 * 3600 + seconds) * SECOND;
        watchdog.check(due(3), now, WatchdogTimeout::new(80))
    };
    assert_eq!([5, 79, 80].map(&mut later), [Wait, Kick, GiveUp]);
    assert_eq!(never.period_ms(), 5000);
}

#[test]
fn a_late_check_gives_up_without_a_kick() {
    assert_eq!(looks([(0, due(3)), (500, due(3))]), [Wait, GiveUp]);
}

#[test]
fn progress_restarts_the_timeout() {
    let times = [
        (0, due(3)),
        (10, due(3)),
        (79, due(4)),
        (88, due(4)),
        (89, due(4)),
        (159, due(4)),
    ];
    assert_eq!(looks(times), [Wait, Kick, Wait, Wait, Kick, GiveUp]);
}

#[test]
fn a_completion_after_a_kick_is_progress() {
    let times = [
        (0, due(3)),
        (10, due(3)),
        (11, idle(5)),
        (100, due(5)),
        (109, due(5)),
    ];
    assert_eq!(looks(times), [Wait, Kick, Wait, Wait, Wait]);
}

#[test]
fn unsignaled_sends_may_stay() {
    assert_eq!(
        looks([0, 10, 80, 500].map(|time| (time, idle(3)))),
        [Wait; 4]
    );
}

/// The time begins with the first check that finds a completion due, not with an earlier one.
#[test]
fn the_time_begins_when_a_report_is_due() {
    let times = [
        (0, idle(3)),
        (79, due(3)),
        (88, due(3)),
        (89, due(3)),
        (158, due(3)),
        (159, due(3)),
    ];
    assert_eq!(looks(times), [Wait, Wait, Wait, Kick, Wait, GiveUp]);
}

#[test]
fn an_endpoint_is_given_up_once() {
    let times = [
        (0, due(3)),
        (80, due(3)),
        (81, due(3)),
        (90, due(3)),
        (161, due(3)),
    ];
    assert_eq!(looks(times), [Wait, GiveUp, Wait, Wait, GiveUp]);
}

/// Checks are frequent enough: several come between posting, asking and giving up.
#[test]
fn checks_are_frequent_enough() {
    for secs in [1, 2, 15, 80, 120, 3600, u32::MAX] {
        let period = u64::from(WatchdogTimeout::new(secs).period_ms());
        assert!(
            period > 0 && period <= 5000 && period * 16 <= u64::from(secs) * 1000,
            "{secs}"
        );
    }
}

#[test]
fn a_clock_that_stands_still_or_goes_back_harms_nothing() {
    assert_eq!(looks([(5, due(1)), (5, due(1)), (0, due(1))]), [Wait; 3]);
}
