// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/starvation.rs`.

use crate::proto::{
    starvation::{
        Shortage::{self, *},
        Starvation,
    },
    wire::FragmentSize::{self, *},
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 5 * SECOND;

/// Returns the seconds after which a connection is given up, at most 99.
fn seconds(why: Shortage, fragment: FragmentSize, partial: bool) -> Option<u64> {
    let mut starvation = Starvation::new();
    (0..100).find(|x| starvation.wait(BEGIN + x * SECOND, why, fragment, partial))
}

#[test]
fn a_connection_waits_before_it_is_given_up() {
    assert_eq!(seconds(NoMemory, K8, false), Some(1));
    assert_eq!(seconds(NoMemory, K16, true), Some(1));
    assert_eq!(seconds(Limit, K8, false), Some(30));
    assert_eq!(seconds(Limit, K16, true), Some(1));
}

#[test]
fn smaller_fragments_than_the_smallest_do_not_exist() {
    assert_eq!(seconds(NoMemory, K4, false), None);
    assert_eq!(seconds(Limit, K4, false), None);
    assert_eq!(seconds(NoMemory, K4, true), Some(1));
    assert_eq!(seconds(Limit, K4, true), Some(1));
}

proptest! {
    /// Memory that comes in time ends the wait.
    #[test]
    fn moments_without_memory_do_not_add_up(times in prop::collection::vec(0..SECOND, 1..50)) {
        let (mut starvation, mut now) = (Starvation::new(), BEGIN);
        for time in times {
            prop_assert!(!starvation.wait(now, NoMemory, K8, true));
            now += time;
            prop_assert!(!starvation.wait(now, NoMemory, K8, true));
            prop_assert!(starvation.is_starved());
            starvation.end();
            prop_assert!(!starvation.is_starved());
            now += SECOND;
        }
    }
}
