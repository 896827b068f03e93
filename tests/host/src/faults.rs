// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/faults.rs`.

use crate::proto::faults::{Faults, Standing};
use Standing::{Bad, Good, New};

const SECOND: u64 = 1_000_000_000;

/// A user uses a wrong key for so many seconds, as fast as he may, and each time there is no link for `outage`. Returns
/// how often, and for how long there was none in all.
fn misuse(faults: &mut Faults, from: u64, seconds: u64, outage: u64) -> (u32, u64) {
    let (mut now, mut count) = (from, 0);
    while now < from + seconds * SECOND {
        match faults.turn(1, Bad, now) {
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
fn who_makes_a_mistake_does_not_wait() {
    let mut faults = Faults::new();
    for second in (0..1000).step_by(5) {
        faults.note(1, Bad, second * SECOND);
        assert_eq!(faults.turn(1, Bad, second * SECOND), Ok(()));
    }
    for _ in 0..4 {
        faults.note(2, Bad, SECOND);
        assert_eq!(faults.turn(2, Bad, SECOND), Ok(()));
    }
}

/// Whatever it costs to make a connection anew, a second as with C RDS, or some milliseconds: there is one for most of the
/// time.
#[test]
fn who_goes_on_waits_longer_and_longer() {
    for (outage, at_once) in [(SECOND / 200, 17), (SECOND / 10, 12), (SECOND, 8)] {
        let mut faults = Faults::new();
        let (first, _) = misuse(&mut faults, 0, 10, outage);
        assert!((6..=at_once).contains(&first), "{first}");
        let (_, down) = misuse(&mut faults, 20 * SECOND, 100, outage);
        assert!(down <= 30 * SECOND, "{outage}: {down}");
        // In the end it is forgotten.
        assert_eq!(faults.turn(1, Bad, 300 * SECOND), Ok(()));
        faults.note(1, Bad, 300 * SECOND);
        assert_eq!(faults.turn(1, Bad, 300 * SECOND), Ok(()));
    }
}

/// What was queued without a link would break the next one at once.
#[test]
fn who_has_to_wait_waits_for_a_link_first() {
    let mut faults = Faults::new();
    for _ in 0..5 {
        faults.note(1, Bad, 0);
    }
    // It asks again, as nobody tells that there is one.
    assert_eq!(faults.turn(1, Bad, SECOND), Err(SECOND / 50));
    let mut found = faults.clone();
    found.recover(SECOND);
    assert_eq!(found.turn(1, Bad, SECOND), Err(SECOND));
    assert_eq!(found.turn(1, Bad, 2 * SECOND), Ok(()));
    // But not for ever.
    assert_eq!(faults.turn(1, Bad, 4 * SECOND), Ok(()));
}

#[test]
fn other_users_do_not_wait() {
    let mut faults = Faults::new();
    misuse(&mut faults, 0, 10, 0);
    assert_eq!(faults.turn(2, Bad, 10 * SECOND), Ok(()));
    faults.note(2, Bad, 10 * SECOND);
    assert_eq!(faults.turn(2, Bad, 10 * SECOND), Ok(()));
    assert!(faults.turn(1, Bad, 10 * SECOND).is_err());
}

/// One program of a user does not stop the others.
#[test]
fn sockets_that_do_well_do_not_wait() {
    let mut faults = Faults::new();
    for seconds in 0..100 {
        misuse(&mut faults, seconds * SECOND, 1, SECOND / 100);
        assert_eq!(faults.turn(1, Good, (seconds + 1) * SECOND), Ok(()));
    }
}

/// At a time there goes one, however many sockets there are.
#[test]
fn sockets_of_a_user_take_turns() {
    let mut faults = Faults::new();
    for _ in 0..8 {
        faults.note(1, Bad, 0);
    }
    faults.recover(0);
    let wait = faults.turn(1, Bad, 0).unwrap_err();
    assert_eq!(faults.turn(1, Bad, wait), Ok(()));
    assert!(faults.turn(1, Bad, wait).is_err());
}

/// Who changes his user all the time waits for what all of them have done.
#[test]
fn many_users_are_counted_together() {
    let mut faults = Faults::new();
    for user in 0..100 {
        faults.note(user, Bad, 0);
    }
    assert!(faults.turn(99, Bad, 0).is_err());
    assert_eq!(faults.turn(0, Bad, 0), Ok(()));
    // Those who come later find room.
    faults.note(1000, Bad, 400 * SECOND);
    assert_eq!(faults.turn(1000, Bad, 400 * SECOND), Ok(()));
}

#[test]
fn who_has_done_nothing_does_not_wait_for_what_many_have_done() {
    let mut faults = Faults::new();
    for user in 0..5 {
        for _ in 0..20 {
            faults.note(user, Bad, 0);
        }
    }
    let held = (5..1005).filter(|&user| faults.turn(user, Bad, 0).is_err());
    // One in 64 has the same bit as the fifth.
    assert!((1..50).contains(&held.count()));
    // Once that is forgotten, another one's is all that counts.
    faults.note(0, Bad, 400 * SECOND);
    assert_eq!(faults.turn(4, Bad, 400 * SECOND), Ok(()));
}

/// One program that has no good key does not stop those that begin, but one that makes socket after socket is paced.
#[test]
fn new_sockets_wait_if_many_new_ones_were_refused() {
    let mut faults = Faults::new();
    faults.note(1, New, 0);
    for _ in 0..100 {
        faults.note(1, Bad, 0);
    }
    faults.recover(0);
    assert!(faults.turn(1, Bad, 0).is_err());
    assert_eq!(faults.turn(1, New, 0), Ok(()));
    for _ in 0..20 {
        faults.note(1, New, 0);
    }
    faults.recover(0);
    assert!(faults.turn(1, New, 0).is_err());
    assert_eq!(faults.turn(1, Good, 0), Ok(()));
}

/// Then nobody need ask any more.
#[test]
fn all_is_forgotten_in_the_end() {
    let mut faults = Faults::new();
    assert!(faults.is_forgotten(0));
    // More users than have places.
    for user in 1..10 {
        faults.note(user, Bad, SECOND);
        faults.note(user, New, SECOND);
    }
    faults.recover(2 * SECOND);
    assert!(!faults.is_forgotten(2 * SECOND));
    // The users with places have two each, which takes 8 seconds, and all others have ten together.
    assert!(!faults.is_forgotten(40 * SECOND));
    assert!(faults.is_forgotten(41 * SECOND));
    assert_eq!(faults.turn(1, Bad, 41 * SECOND), Ok(()));
    faults.note(1, Bad, 41 * SECOND);
    assert!(!faults.is_forgotten(41 * SECOND));
}
