// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/starvation.rs`.

use crate::proto::{
    starvation::{
        next_give_up, SendCheck, SendStarvation,
        Shortage::{self, *},
        Starvation, StreamCheck, StreamStarvation,
    },
    wire::FragmentSize::{self, *},
    SECOND,
};
use proptest::prelude::*;

const BEGIN: u64 = 5 * SECOND;
/// Interval of the checks of a connection that waits.
const CHECK: u64 = SECOND / 50;
/// Sequence of the last message that has arrived.
const LAST: u64 = 7;

/// Returns the seconds after which a connection is given up, at most 99.
fn seconds(why: Shortage, fragment: FragmentSize, partial: bool) -> Option<u64> {
    let mut starvation = Starvation::new();
    (0..100).find(|x| starvation.wait(BEGIN + x * SECOND, why, fragment, LAST, partial))
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

#[test]
fn a_wait_at_the_limit_is_none_for_memory() {
    let mut starvation = Starvation::new();
    assert!(!starvation.wait(0, Limit, K8, LAST, false));
    assert!(!starvation.wait(5 * SECOND, NoMemory, K8, LAST, false));
    assert!(!starvation.wait(6 * SECOND - 1, NoMemory, K8, LAST, false));
    assert!(starvation.wait(6 * SECOND, NoMemory, K8, LAST, false));
}

#[test]
fn a_message_in_part_gets_its_time_after_a_wait_at_the_limit() {
    let mut starvation = Starvation::new();
    assert!(!starvation.wait(0, Limit, K8, LAST, false));
    assert!(!starvation.wait(28 * SECOND, Limit, K8, LAST, true));
    // Its connection has found a buffer meanwhile.
    starvation.end();
    assert!(!starvation.wait(28 * SECOND + CHECK, Limit, K8, LAST, false));
    assert!(!starvation.wait(29 * SECOND, Limit, K8, LAST, true));
    assert!(!starvation.wait(30 * SECOND - 1, Limit, K8, LAST, true));
    assert!(starvation.wait(30 * SECOND, Limit, K8, LAST, true));
    let mut starvation = Starvation::new();
    assert!(!starvation.wait(0, Limit, K4, LAST, false));
    assert!(!starvation.wait(40 * SECOND, Limit, K4, LAST, true));
    assert!(starvation.wait(41 * SECOND, Limit, K4, LAST, true));
}

#[test]
fn whatever_the_reasons_no_wait_is_longer_than_that_for_the_limit() {
    let mut starvation = Starvation::new();
    let whys = [Limit, NoMemory].into_iter().cycle();
    let given_up = (0..)
        .step_by(CHECK as usize)
        .zip(whys)
        .find(|(time, why)| starvation.wait(*time, *why, K16, LAST, false));
    assert_eq!(given_up.map(|(time, _)| time), Some(30 * SECOND));
}

/// Short messages get on with a single receive, whose buffer is posted again.
#[test]
fn a_connection_whose_messages_get_on_is_not_given_up() {
    for why in [Limit, NoMemory] {
        let (mut starvation, mut now) = (Starvation::new(), BEGIN);
        for last in 0..100 {
            // Each one comes in parts.
            for _ in 0..2 {
                now += SECOND / 2 - 1;
                assert!(!starvation.wait(now, why, K8, last, true));
                assert!(starvation.is_starved());
            }
        }
        // Bare headers have the sequence of no message.
        let mut later = (now..).step_by(CHECK as usize);
        let given_up = later.find(|now| starvation.wait(*now, why, K8, 99, false));
        let longest = if why == Limit { 30 } else { 1 };
        assert!(given_up.is_some_and(|it| it > now && it <= now + longest * SECOND));
    }
}

/// A connection over TCP that has received a part of a message, from a peer of this module.
const STREAM: StreamCheck = StreamCheck {
    frames: 7,
    partial: true,
    ended: false,
    sends_again: true,
};

/// Returns the seconds after which a connection over TCP is given up, at most 99.
fn seconds_of(mut stream: impl FnMut(u64) -> StreamCheck) -> Option<u64> {
    let mut starvation = StreamStarvation::new();
    (0..100).find(|x| starvation.wait(BEGIN + x * SECOND, &stream(*x)))
}

#[test]
fn a_message_in_part_does_not_keep_its_buffers_over_tcp() {
    assert_eq!(seconds_of(|_| STREAM), Some(1));
    // What TCP has acknowledged would be lost.
    let sends_again = false;
    let of_c = StreamCheck {
        sends_again,
        ..STREAM
    };
    assert_eq!(seconds_of(|_| of_c), Some(30));
}

#[test]
fn a_stream_that_keeps_nothing_waits() {
    for sends_again in [false, true] {
        let partial = false;
        let idle = StreamCheck {
            partial,
            sends_again,
            ..STREAM
        };
        assert_eq!(seconds_of(|_| idle), None);
    }
}

#[test]
fn a_stream_that_has_ended_does_not_wait_for_memory() {
    for partial in [false, true] {
        let ended = StreamCheck {
            partial,
            ended: true,
            ..STREAM
        };
        assert_eq!(seconds_of(|_| ended), Some(0));
        let sends_again = false;
        let of_c = StreamCheck {
            sends_again,
            ..ended
        };
        assert_eq!(seconds_of(|_| of_c), Some(30));
    }
}

#[test]
fn a_stream_that_gets_on_is_not_given_up() {
    let frames = |second| StreamCheck {
        frames: u32::try_from(second).unwrap(),
        ..STREAM
    };
    assert_eq!(seconds_of(frames), None);
    let until = |second: u64| frames(second.min(50));
    assert_eq!(seconds_of(until), Some(51));
    // There was a buffer meanwhile.
    let mut starvation = StreamStarvation::new();
    assert!(!starvation.wait(BEGIN, &STREAM));
    starvation.end();
    assert!(!starvation.wait(BEGIN + SECOND, &STREAM));
    assert!(starvation.wait(BEGIN + 2 * SECOND, &STREAM));
}

/// Returns the progress after a number of frames. The device still has the last one, or nothing.
fn after(frames: u32, due: bool) -> SendCheck {
    let posted = frames.into();
    SendCheck {
        frames,
        posted,
        done: posted - u64::from(due),
        due,
    }
}

/// Returns the progress after seven frames and a number of headers.
fn headers(count: u64, done: u64, due: bool) -> SendCheck {
    SendCheck {
        frames: 7,
        posted: 7 + count,
        done,
        due,
    }
}

#[test]
fn a_transmission_waits_a_second_for_memory() {
    let mut send = SendStarvation::new();
    let given_up = (BEGIN..)
        .step_by(CHECK as usize)
        .find(|now| send.wait(*now, after(7, false)));
    assert_eq!(given_up, Some(BEGIN + SECOND));
    send.end();
    assert!(!send.is_starved());
}

/// Sends that were posted before are no sign that this one gets on.
#[test]
fn a_transmission_that_was_over_does_not_count() {
    const HOUR: u64 = 3600 * SECOND;
    let mut send = SendStarvation::new();
    assert!(!send.wait(BEGIN, after(7, false)));
    assert!(send.is_starved());
    send.end();
    assert!(!send.wait(BEGIN + HOUR, after(7, false)));
    assert!(!send.wait(BEGIN + HOUR + SECOND - 1, after(7, false)));
    assert!(send.wait(BEGIN + HOUR + SECOND, after(7, false)));
}

/// A device that owes a completion may return a buffer.
#[test]
fn sends_in_flight_may_return_a_buffer() {
    let mut send = SendStarvation::new();
    for time in (0..5 * SECOND).step_by(CHECK as usize) {
        assert!(!send.wait(BEGIN + time, after(7, true)));
        // Nothing else would cause the next check.
        assert!(send.is_starved());
    }
    assert!(!send.wait(BEGIN + 6 * SECOND, after(7, false)));
    assert!(send.wait(BEGIN + 7 * SECOND, after(7, false)));
}

/// Each check may post a header, which takes longer than the time until the next check.
#[test]
fn headers_in_flight_return_no_buffer() {
    let checks = || (BEGIN..).step_by(CHECK as usize).zip(0u64..);
    let mut send = SendStarvation::new();
    let given_up = checks().find(|(now, count)| {
        let done = 7 + count.saturating_sub(1);
        send.wait(*now, headers(*count, done, *count > 0))
    });
    assert_eq!(given_up.map(|(now, _)| now), Some(BEGIN + SECOND));
    // A frame was posted before them.
    let mut send = SendStarvation::new();
    let until = BEGIN + 5 * SECOND;
    let given_up = checks().find(|(now, count)| {
        let done = if *now < until { 6 } else { 6 + count };
        send.wait(*now, headers(*count, done, true))
    });
    assert_eq!(given_up.map(|(now, _)| now), Some(until + SECOND));
}

/// Few buffers suffice for few frames. The next connection gets on faster with small fragments.
#[test]
fn no_transmission_crawls_for_longer_than_half_a_minute() {
    for due in [false, true] {
        let (mut send, mut posted) = (SendStarvation::new(), 0);
        let mut checks = (BEGIN..BEGIN + 60 * SECOND).step_by(CHECK as usize);
        let given_up = checks.find(|now| {
            posted += 1;
            send.wait(*now, after(posted, due))
        });
        assert_eq!(given_up, Some(BEGIN + 30 * SECOND));
    }
}

/// Returns the times at which connections that all lack memory are given up, within three seconds.
fn times_of_give_ups(in_small_pieces: bool) -> Vec<u64> {
    let mut next = 0;
    let checks = (BEGIN..BEGIN + 3 * SECOND).step_by(CHECK as usize / 4);
    checks
        .filter(|now| {
            let may = *now >= next;
            if may {
                next = next_give_up(*now, 0, in_small_pieces);
            }
            may
        })
        .collect()
}

#[test]
fn connections_go_one_by_one_so_that_others_get_their_memory() {
    let times = times_of_give_ups(false);
    assert_eq!(times, [BEGIN, BEGIN + SECOND, BEGIN + 2 * SECOND]);
}

#[test]
fn connections_for_which_there_are_small_pieces_go_faster() {
    let times = times_of_give_ups(true);
    assert!(
        times.len() >= 3 * 10,
        "1000 of them would go within minutes"
    );
    assert!(times.len() <= 3 * 100, "their peers connect again at once");
}

/// Memory that is hard to find would otherwise end connections one right after the other.
#[test]
fn the_search_for_memory_is_no_time_for_others_to_use_theirs() {
    for in_small_pieces in [false, true] {
        let interval = next_give_up(BEGIN, 0, in_small_pieces) - BEGIN;
        for spent in [1, SECOND, 10 * SECOND] {
            let next = next_give_up(BEGIN, spent, in_small_pieces);
            assert_eq!(next - (BEGIN + spent), interval);
        }
        assert_eq!(next_give_up(BEGIN, u64::MAX, in_small_pieces), u64::MAX);
    }
}

proptest! {
    /// Memory that comes in time ends the wait.
    #[test]
    fn moments_without_memory_do_not_add_up(times in prop::collection::vec(0..SECOND, 1..50)) {
        let (mut starvation, mut now) = (Starvation::new(), BEGIN);
        for time in times {
            prop_assert!(!starvation.wait(now, NoMemory, K8, LAST, true));
            now += time;
            prop_assert!(!starvation.wait(now, NoMemory, K8, LAST, true));
            prop_assert!(starvation.is_starved());
            starvation.end();
            prop_assert!(!starvation.is_starved());
            now += SECOND;
        }
    }

    /// A transmission that sends a frame at least once a second is not given up at once.
    #[test]
    fn a_transmission_that_gets_on_is_not_given_up(
        times in prop::collection::vec(0..SECOND, 1..30),
    ) {
        let (mut send, mut now) = (SendStarvation::new(), BEGIN);
        for (time, posted) in times.into_iter().zip(1..) {
            for check in (0..time).step_by(CHECK as usize).chain([time]) {
                prop_assert!(!send.wait(now + check, after(posted, false)));
            }
            now += time;
        }
    }
}
