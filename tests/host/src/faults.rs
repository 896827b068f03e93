// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/faults.rs`.

use crate::proto::{
    faults::{Admission, Faults, Standing},
    SECOND,
};
use Standing::{Bad, Good, New};

/// Lets a user use a wrong key as fast as permitted, with a link outage of `outage` each time.
/// Returns the number of uses and the total outage.
fn misuse(faults: &mut Faults, from: u64, seconds: u64, outage: u64) -> (u32, u64) {
    let (mut now, mut count) = (from, 0);
    while now < from + seconds * SECOND {
        match faults.admit(1, Bad, now) {
            // Until the peer has answered.
            Ok(()) => {
                now += SECOND / 1000;
                faults.note(1, Bad, now);
                now += outage;
                faults.recover(now);
                count += 1;
            }
            Err(wait) => now += wait,
        }
    }
    (count, u64::from(count) * outage)
}

#[test]
fn single_faults_do_not_delay_a_user() {
    let mut faults = Faults::new();
    for second in (0..1000).step_by(5) {
        faults.note(1, Bad, second * SECOND);
        assert_eq!(faults.admit(1, Bad, second * SECOND), Ok(()));
    }
    for _ in 0..4 {
        faults.note(2, Bad, SECOND);
        assert_eq!(faults.admit(2, Bad, SECOND), Ok(()));
    }
}

/// A link exists most of the time, however long a reconnect takes: a second as with C RDS, or some
/// milliseconds.
#[test]
fn repeated_faults_delay_a_user_longer_and_longer() {
    for (outage, at_once) in [(SECOND / 200, 17), (SECOND / 10, 12), (SECOND, 8)] {
        let mut faults = Faults::new();
        let (first, _) = misuse(&mut faults, 0, 10, outage);
        assert!((6..=at_once).contains(&first), "{first}");
        let (_, down) = misuse(&mut faults, 20 * SECOND, 100, outage);
        assert!(down <= 30 * SECOND, "{outage}: {down}");
        // Finally the faults are forgotten.
        assert_eq!(faults.admit(1, Bad, 300 * SECOND), Ok(()));
        faults.note(1, Bad, 300 * SECOND);
        assert_eq!(faults.admit(1, Bad, 300 * SECOND), Ok(()));
    }
}

/// Operations that were queued without a link would break the next one at once.
#[test]
fn a_delayed_user_waits_for_a_link_first() {
    let mut faults = Faults::new();
    for _ in 0..5 {
        faults.note(1, Bad, 0);
    }
    // The user asks again, because nothing reports that a link exists.
    assert_eq!(faults.admit(1, Bad, SECOND), Err(SECOND / 50));
    let mut found = faults.clone();
    found.recover(SECOND);
    assert_eq!(found.admit(1, Bad, SECOND), Err(SECOND));
    assert_eq!(found.admit(1, Bad, 2 * SECOND), Ok(()));
    // The wait for a link is limited.
    assert_eq!(faults.admit(1, Bad, 4 * SECOND), Ok(()));
}

#[test]
fn other_users_do_not_wait() {
    let mut faults = Faults::new();
    misuse(&mut faults, 0, 10, 0);
    assert_eq!(faults.admit(2, Bad, 10 * SECOND), Ok(()));
    faults.note(2, Bad, 10 * SECOND);
    assert_eq!(faults.admit(2, Bad, 10 * SECOND), Ok(()));
    assert!(faults.admit(1, Bad, 10 * SECOND).is_err());
}

/// One faulty program of a user does not stop the user's other programs.
#[test]
fn sockets_that_do_well_do_not_wait() {
    let mut faults = Faults::new();
    for seconds in 0..100 {
        misuse(&mut faults, seconds * SECOND, 1, SECOND / 100);
        assert_eq!(faults.admit(1, Good, (seconds + 1) * SECOND), Ok(()));
    }
}

/// One socket goes at a time, regardless of their number.
#[test]
fn sockets_of_a_user_are_admitted_in_turn() {
    let mut faults = Faults::new();
    for _ in 0..8 {
        faults.note(1, Bad, 0);
    }
    faults.recover(0);
    let wait = faults.admit(1, Bad, 0).unwrap_err();
    assert_eq!(faults.admit(1, Bad, wait), Ok(()));
    assert!(faults.admit(1, Bad, wait).is_err());
}

/// A program that keeps changing its user waits for the faults of all these users.
#[test]
fn many_users_are_counted_together() {
    let mut faults = Faults::new();
    for user in 0..100 {
        faults.note(user, Bad, 0);
    }
    assert!(faults.admit(99, Bad, 0).is_err());
    assert_eq!(faults.admit(0, Bad, 0), Ok(()));
    // Later users find free places.
    faults.note(1000, Bad, 400 * SECOND);
    assert_eq!(faults.admit(1000, Bad, 400 * SECOND), Ok(()));
}

#[test]
fn faults_of_many_users_delay_few_others() {
    let mut faults = Faults::new();
    for user in 0..5 {
        for _ in 0..20 {
            faults.note(user, Bad, 0);
        }
    }
    let held = (5..1005).filter(|&user| faults.admit(user, Bad, 0).is_err());
    // One in 64 shares its bit with the fifth user.
    assert!((1..50).contains(&held.count()));
    // Once those faults are forgotten, only the new fault of another user counts.
    faults.note(0, Bad, 400 * SECOND);
    assert_eq!(faults.admit(4, Bad, 400 * SECOND), Ok(()));
}

/// A program without a good key does not stop new sockets. A program that keeps creating sockets is
/// paced.
#[test]
fn new_sockets_wait_if_many_new_ones_were_refused() {
    let mut faults = Faults::new();
    faults.note(1, New, 0);
    for _ in 0..100 {
        faults.note(1, Bad, 0);
    }
    faults.recover(0);
    assert!(faults.admit(1, Bad, 0).is_err());
    assert_eq!(faults.admit(1, New, 0), Ok(()));
    for _ in 0..20 {
        faults.note(1, New, 0);
    }
    faults.recover(0);
    assert!(faults.admit(1, New, 0).is_err());
    assert_eq!(faults.admit(1, Good, 0), Ok(()));
}

/// After that no state needs to be consulted.
#[test]
fn all_is_forgotten_in_the_end() {
    let mut faults = Faults::new();
    assert!(faults.is_forgotten(0));
    // More users than there are places.
    for user in 1..10 {
        faults.note(user, Bad, SECOND);
        faults.note(user, New, SECOND);
    }
    faults.recover(2 * SECOND);
    assert!(!faults.is_forgotten(2 * SECOND));
    // Users with places have two faults each, which takes 8 seconds. All others have ten together.
    assert!(!faults.is_forgotten(40 * SECOND));
    assert!(faults.is_forgotten(41 * SECOND));
    assert_eq!(faults.admit(1, Bad, 41 * SECOND), Ok(()));
    faults.note(1, Bad, 41 * SECOND);
    assert!(!faults.is_forgotten(41 * SECOND));
}

/// Only operations that were admitted before a refusal end, and only where new ones would wait.
#[test]
fn an_operation_that_was_admitted_before_the_refusals_ends() {
    let mut faults = Faults::new();
    let before = Admission(SECOND);
    for _ in 0..4 {
        faults.note(1, Bad, 2 * SECOND);
    }
    assert!(!faults.is_outdated(1, Bad, before, 2 * SECOND));
    faults.note(1, Bad, 2 * SECOND);
    faults.recover(3 * SECOND);
    let now = 3 * SECOND;
    assert!(faults.is_outdated(1, Bad, before, now));
    assert!(faults.is_outdated(1, Bad, Admission::default(), now));
    assert!(!faults.is_outdated(1, Bad, Admission(2 * SECOND), now));
    assert!(!faults.is_outdated(1, Good, before, now));
    assert!(!faults.is_outdated(1, New, before, now));
    assert!(!faults.is_outdated(2, Bad, before, now));
    // The refusals are forgotten.
    assert!(!faults.is_outdated(1, Bad, before, 100 * SECOND));
}

#[test]
fn an_operation_of_a_new_socket_ends_after_many_refusals_of_such() {
    let mut faults = Faults::new();
    let ends = |faults: &mut Faults| faults.is_outdated(1, New, Admission(1), SECOND);
    for _ in 0..20 {
        faults.note(1, New, SECOND);
    }
    assert!(!ends(&mut faults));
    faults.note(1, New, SECOND);
    assert!(ends(&mut faults));
}
