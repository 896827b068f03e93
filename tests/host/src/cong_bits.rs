// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/cong_bits.rs` and `proto/rcvbuf.rs`.

use crate::proto::cong_bits::*;
use crate::proto::rcvbuf::{
    closely, is_overrun, overrun_floor, takes_short, tight_limit, transition, usage, Charges,
    Transition, Unread, Usage,
};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

fn wire(map: &[u64; WORDS]) -> Vec<u8> {
    map.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn bits_lie_where_the_wire_wants_them() {
    for port in [0, 1, 7, 8, 63, 64, 4000, 32767, 32768, 65535] {
        let mut map = [0; WORDS];
        assert!(set(&mut map, port));
        let bytes = wire(&map);
        let at = usize::from(port);
        for (index, byte) in bytes.iter().enumerate() {
            let expected = if index == at / 8 { 1 << (at % 8) } else { 0 };
            assert_eq!(*byte, expected, "port {port} byte {index}");
        }
    }
}

#[test]
fn an_incomplete_word_is_ignored() {
    assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 0, 9]).collect::<Vec<_>>(), [1]);
    assert_eq!(words(&[0xff; 7]).count(), 0);
}

#[test]
fn receive_buffer_hysteresis() {
    use Transition::*;
    for (congested, bytes, expected) in [
        (false, 100, None),
        (false, 101, Congested),
        (false, 0, None),
        (true, 101, None),
        (true, 50, None),
        (true, 49, Cleared),
        (true, 0, Cleared),
    ] {
        assert_eq!(
            transition(congested, bytes, 100),
            expected,
            "{congested} {bytes}"
        );
    }
    assert_eq!(transition(false, u64::MAX, u64::MAX), None);
    assert_eq!(transition(false, 1, 0), Congested);
}

proptest! {
    #[test]
    fn against_a_set(steps in prop::collection::vec((any::<bool>(), any::<u16>()), 0..200),
                     later in prop::collection::vec((any::<bool>(), any::<u16>()), 0..200)) {
        let mut map = [0; WORDS];
        let mut model = BTreeSet::new();
        let run = |map: &mut [u64; WORDS], model: &mut BTreeSet<u16>, steps: &[(bool, u16)]| {
            for (on, port) in steps {
                let port = if *on { *port } else { *model.iter().next().unwrap_or(port) };
                if *on {
                    assert_eq!(set(map, port), model.insert(port));
                } else {
                    assert_eq!(clear(map, port), model.remove(&port));
                }
                assert_eq!(test(map, port), model.contains(&port));
            }
        };
        run(&mut map, &mut model, &steps);
        let (old_map, old_model) = (map, model.clone());
        run(&mut map, &mut model, &later);
        let mask = old_model.difference(&model).fold(0u64, |m, port| m | 1 << (port % 64));
        let freed = old_map.iter().zip(&map).fold(0, |m, (old, new)| m | uncongested(*old, *new));
        prop_assert_eq!(freed, mask);
        prop_assert_eq!(words(&wire(&map)).collect::<Vec<_>>(), map.to_vec());
    }
}

#[test]
fn only_a_peer_that_ignores_the_map_overruns_a_socket() {
    const MIB: u64 = 1 << 20;
    assert_eq!(overrun_floor(512 * MIB), 32 * MIB);
    assert_eq!(overrun_floor(64 << 30), 2 << 30);
    assert!(!is_overrun(32 * MIB, 100_000, 32 * MIB));
    assert!(is_overrun(32 * MIB + 1, 100_000, 32 * MIB));
    // A program with a larger receive buffer may exceed the limit.
    assert!(!is_overrun(64 * MIB + 3, 16 * MIB, 32 * MIB));
    assert!(is_overrun(64 * MIB + 4, 16 * MIB, 32 * MIB));
    assert!(!is_overrun(4 * MIB, u64::MAX, 32 * MIB));
    assert!(is_overrun(u64::MAX, 0, u64::MAX - 1));
}

const fn unread(in_buffers: u64, copied: u64) -> Unread {
    Unread { in_buffers, copied }
}

/// Lets some users take turns until the usage of one is `Tight` (throttled), `Large` (copied) and
/// `Full` (refused). Returns each user's share of a limit of 1200 at these points.
fn shares(users: u64) -> (u64, u64, u64) {
    let (mut own, mut found) = (unread(0, 0), [0; 3]);
    for (place, worst) in [Usage::Tight, Usage::Large, Usage::Full]
        .into_iter()
        .enumerate()
    {
        loop {
            let all = unread(own.in_buffers * users, own.copied * users);
            match usage(own, all, 1200) {
                now if now >= worst => break,
                Usage::Large => own.copied += 1,
                _ => own.in_buffers += 1,
            }
        }
        found[place] = own.total();
    }
    found.into()
}

#[test]
fn users_share_the_memory_to_receive_with() {
    // A single user gets a third, a half, and all of the limit. With more users each gets less, and
    // some memory is always left.
    assert_eq!(shares(1), (401, 601, 1201));
    assert_eq!(shares(2), (301, 401, 801));
    assert_eq!(shares(9), (110, 121, 241));
    // A user without unread data gets a message even if others have used up the limit.
    assert_eq!(usage(unread(0, 0), unread(1200, 0), 1200), Usage::Small);
    assert_eq!(usage(unread(1, 0), unread(1200, 0), 1200), Usage::Large);
    assert_eq!(usage(unread(1, 0), unread(1200, 1200), 1200), Usage::Full);
    // Copied messages of other users do not count against this user's buffers.
    assert_eq!(usage(unread(200, 0), unread(800, 1600), 1200), Usage::Small);
    let most = unread(u64::MAX, u64::MAX);
    assert_eq!(usage(most, most, u64::MAX), Usage::Full);
    assert_eq!(
        usage(unread(1 << 40, 0), unread(1 << 40, 0), u64::MAX),
        Usage::Small
    );
    assert_eq!(tight_limit(212_992), 26_624);
}

#[test]
fn short_messages_have_a_share() {
    let mut own = unread(0, 0);
    let mut tight = None;
    while takes_short(own, own, 1200) {
        own.copied += 1;
        if usage(own, own, 1200) == Usage::Tight {
            tight.get_or_insert(own.copied);
        }
    }
    // Two thirds of the limit, and all of it.
    assert_eq!((tight, own.copied), (Some(801), 1201));
    // A user without copied data gets a message even if others have used up the limit. Buffers do
    // not count.
    assert!(takes_short(unread(600, 0), unread(1200, 1200), 1200));
    assert!(!takes_short(unread(0, 1), unread(1200, 1200), 1200));
}

proptest! {
    /// The charge is never less than what waits, exceeds it only slightly, and is returned in full.
    #[test]
    fn charges_in_steps(
        steps in prop::collection::vec((any::<bool>(), 0u64..3, 1u64..9000), 0..300),
        closely: bool,
    ) {
        const STEP: u64 = 4096;
        let (mut charges, mut waiting) = (Charges::new(), VecDeque::new());
        let (mut charged, mut taken) = (unread(0, 0), unread(0, 0));
        let change = |sum: &mut Unread, by: Unread, more: bool| {
            let one = |it: u64, by: u64| if more { it + by } else { it - by };
            *sum = unread(one(sum.in_buffers, by.in_buffers), one(sum.copied, by.copied));
        };
        for (arrives, buffers, copied) in steps {
            let message = unread(buffers * 4096, copied);
            if arrives {
                change(&mut charged, charges.add(message), true);
                change(&mut taken, message, true);
                waiting.push_back(message);
            } else if let Some(read) = waiting.pop_front() {
                change(&mut charged, charges.subtract(read, closely), false);
                change(&mut taken, read, false);
            }
            prop_assert_eq!(charged.in_buffers, taken.in_buffers);
            prop_assert!(charged.copied >= taken.copied);
            prop_assert!(charged.copied < taken.copied + 2 * STEP);
            if closely && !arrives && waiting.is_empty() {
                prop_assert_eq!(charged.total(), 0);
            }
        }
        prop_assert_eq!(charges.take(), charged);
        prop_assert_eq!(charges.take(), unread(0, 0));
    }
}

/// Sockets whose messages were all read do not make their user's share smaller, however many there
/// are.
#[test]
fn memory_of_idle_sockets_has_no_effect() {
    const LIMIT: u64 = 64 << 20;
    let (mut own, others) = (unread(0, 0), unread(LIMIT / 4, LIMIT / 4));
    let all = |own: Unread| unread(others.in_buffers, others.copied + own.copied);
    let mut sockets: Vec<_> = (0..200_000).map(|_| Charges::new()).collect();
    for charges in &mut sockets {
        let message = unread(0, 256);
        own.copied += charges.add(message).copied;
        let close = closely(own, all(own), LIMIT);
        own.copied -= charges.subtract(message, close).copied;
    }
    assert_eq!(usage(own, all(own), LIMIT), Usage::Small);
    assert!(own.copied <= 2 * LIMIT / 32 + 4096, "{}", own.copied);
    // It is far from having one.
    let more = unread(0, own.copied + LIMIT / 3);
    assert_eq!(usage(more, all(more), LIMIT), Usage::Small);
}

#[test]
fn messages_that_come_one_by_one_are_charged_once() {
    let mut charges = Charges::new();
    let message = unread(0, 256);
    assert_eq!(charges.add(message), unread(0, 4096));
    for _ in 0..1000 {
        assert_eq!(charges.subtract(message, false), unread(0, 0));
        assert_eq!(charges.add(message), unread(0, 0));
    }
    assert_eq!(charges.subtract(message, true), unread(0, 4096));
}
