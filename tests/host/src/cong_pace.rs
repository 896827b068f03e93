// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/cong_pace.rs`.

use crate::proto::cong_pace::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const START: u64 = 5_000 * MS;

/// Returns how many rounds begin from `from` on, if one begins whenever it may and the map is
/// looked at every `step` nanoseconds.
fn rounds(pace: &mut MapPace, from: u64, time: u64, step: u64) -> u64 {
    let mut begun = 0;
    let mut now = from;
    while now < from + time {
        while pace.wait(now) == 0 {
            pace.begin(now);
            begun += 1;
        }
        now += step;
    }
    begun
}

#[test]
fn a_map_that_seldom_changes_is_sent_at_once() {
    let mut pace = MapPace::new();
    for i in 0..100 {
        let now = START + i * MS;
        assert_eq!(pace.wait(now), 0);
        pace.begin(now);
    }
}

#[test]
fn a_few_rounds_follow_each_other_at_once() {
    let mut pace = MapPace::new();
    assert_eq!(rounds(&mut pace, START, 1, 1), BURST);
    assert_eq!(pace.wait(START), MS);
    // Others have to wait.
    assert_eq!(rounds(&mut pace, START + 3 * MS, 1, 1), 3);
    assert_eq!(rounds(&mut pace, START + 3_000 * MS, 1, 1), BURST);
}

/// Rounds take longer than their interval.
#[test]
fn of_two_maps_that_are_due_the_one_that_waits_for_longer_is_due_first() {
    let mut paces = [MapPace::new(); 2];
    for round in 0..10 {
        let now = START + round * 2 * MS;
        let turn = usize::from(paces[1].due() < paces[0].due());
        assert_eq!((turn as u64, paces[turn].wait(now)), (round % 2, 0));
        paces[turn].begin(now);
    }
}

#[test]
fn a_map_that_always_changes_is_sent_once_per_millisecond() {
    for step in [MS / 100, MS, 4 * MS] {
        let begun = rounds(&mut MapPace::new(), START, 1_000 * MS, step);
        assert!(
            (990..=1_000 + BURST).contains(&begun),
            "{begun} rounds, step {step}"
        );
    }
    // Where timers are coarser, the limit is lower.
    let begun = rounds(&mut MapPace::new(), START, 1_000 * MS, 10 * MS);
    assert_eq!(begun, 100 * BURST);
}

proptest! {
    /// No times of changes lead to more rounds.
    #[test]
    fn the_average_is_bounded(steps in prop::collection::vec(0..5 * MS, 1..300)) {
        let mut pace = MapPace::new();
        let (mut now, mut begun) = (START, 0);
        for step in steps {
            now += step;
            if pace.wait(now) == 0 {
                pace.begin(now);
                begun += 1;
            }
            prop_assert!(begun <= (now - START) / MS + BURST);
            // Nobody waits for more than one interval.
            prop_assert!(pace.wait(now) <= MS);
        }
    }
}
