// SPDX-License-Identifier: GPL-2.0

//! Tests of `cm/laddr/pace.rs`: events of network devices cannot occupy a CPU.

use pace::*;

#[path = "../../../cm/laddr/pace.rs"]
mod pace;

const MS: u64 = 1_000_000;

/// Returns the share of the time that rounds take, in percent, while there is always an event.
fn share_of_rounds_that_take(ms: u64) -> u64 {
    let (mut now, mut not_before, mut busy) = (0, 0, 0);
    while now < 60_000 * MS {
        now += u64::from(delay_ms(now, not_before)) * MS;
        let begun = now;
        now += ms * MS;
        busy += ms * MS;
        not_before = next_round(begun, now);
    }
    busy * 100 / now
}

#[test]
fn a_storm_of_events_takes_a_tenth_of_a_cpu_if_rounds_are_short() {
    for ms in [1, 2, 5, 10, 50, 100, 200] {
        assert!(share_of_rounds_that_take(ms) <= 10, "{ms}");
    }
    // The rest is limited.
    for ms in [300, 500, 1000] {
        assert!(share_of_rounds_that_take(ms) <= 40, "{ms}");
    }
}

#[test]
fn a_long_round_delays_the_next_one_by_two_seconds_at_most() {
    let ended = 60_000 * MS;
    assert_eq!(next_round(0, ended), ended + 2000 * MS);
    assert_eq!(delay_ms(ended, next_round(0, ended)), 2000);
}

#[test]
fn a_single_event_waits_only_for_others_of_its_group() {
    assert_eq!(delay_ms(5, 0), 20);
    let not_before = next_round(0, 10 * MS);
    assert_eq!(delay_ms(not_before, not_before), 20);
    assert_eq!(delay_ms(not_before - 15 * MS, not_before), 20);
    assert_eq!(delay_ms(10 * MS, not_before), 90);
}
