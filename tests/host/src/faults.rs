// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/faults.rs`.

use crate::proto::faults::Faults;

const SECOND: u64 = 1_000_000_000;

/// A user uses a wrong key for so many seconds, as fast as he may, and each time there is no link for `outage`. Returns
/// how often, and for how long there was none in all.
fn misuse(faults: &mut Faults<u32>, from: u64, seconds: u64, outage: u64) -> (u32, u64) {
    let (mut now, mut count) = (from, 0);
    while now < from + seconds * SECOND {
        match faults.turn(1, false, now) {
            // Until the peer has answered.
            Ok(()) => {
                now += SECOND / 1000;
                faults.note(1, now);
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
        faults.note(1, second * SECOND);
        assert_eq!(faults.turn(1, false, second * SECOND), Ok(()));
    }
    for _ in 0..4 {
        faults.note(2, SECOND);
        assert_eq!(faults.turn(2, false, SECOND), Ok(()));
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
        assert_eq!(faults.turn(1, false, 300 * SECOND), Ok(()));
        faults.note(1, 300 * SECOND);
        assert_eq!(faults.turn(1, false, 300 * SECOND), Ok(()));
    }
}

/// What was queued without a link would break the next one at once.
#[test]
fn who_has_to_wait_waits_for_a_link_first() {
    let mut faults = Faults::new();
    for _ in 0..5 {
        faults.note(1, 0);
    }
    assert_eq!(faults.turn(1, false, SECOND), Err(3 * SECOND));
    let mut found = faults.clone();
    found.recover(SECOND);
    assert_eq!(found.turn(1, false, SECOND), Err(SECOND));
    assert_eq!(found.turn(1, false, 2 * SECOND), Ok(()));
    // But not for ever.
    assert_eq!(faults.turn(1, false, 4 * SECOND), Ok(()));
}

#[test]
fn other_users_do_not_wait() {
    let mut faults = Faults::new();
    misuse(&mut faults, 0, 10, 0);
    assert_eq!(faults.turn(2, false, 10 * SECOND), Ok(()));
    faults.note(2, 10 * SECOND);
    assert_eq!(faults.turn(2, false, 10 * SECOND), Ok(()));
    assert!(faults.turn(1, false, 10 * SECOND).is_err());
}

/// One program of a user does not stop the others, unless what they do is as bad.
#[test]
fn sockets_that_do_well_do_not_wait() {
    let mut faults = Faults::new();
    for seconds in 0..100 {
        misuse(&mut faults, seconds * SECOND, 1, SECOND / 100);
        assert_eq!(faults.turn(1, true, (seconds + 1) * SECOND), Ok(()));
    }
    for _ in 0..30 {
        faults.note(1, 100 * SECOND);
    }
    assert!(faults.turn(1, true, 100 * SECOND).is_err());
}

/// At a time there goes one, however many sockets there are.
#[test]
fn sockets_of_a_user_take_turns() {
    let mut faults = Faults::new();
    for _ in 0..8 {
        faults.note(1, 0);
    }
    faults.recover(0);
    let wait = faults.turn(1, false, 0).unwrap_err();
    assert_eq!(faults.turn(1, false, wait), Ok(()));
    assert!(faults.turn(1, false, wait).is_err());
}

/// Who changes his user all the time waits for what all of them have done.
#[test]
fn many_users_are_counted_together() {
    let mut faults = Faults::new();
    for user in 0..100 {
        faults.note(user, 0);
    }
    assert!(faults.turn(99, false, 0).is_err());
    assert!(faults.turn(1000, false, 0).is_err());
    assert_eq!(faults.turn(0, false, 0), Ok(()));
    // Those who come later find room.
    faults.note(1000, 400 * SECOND);
    assert_eq!(faults.turn(1000, false, 400 * SECOND), Ok(()));
}
