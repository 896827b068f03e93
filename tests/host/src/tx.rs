// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/tx.rs`.

use crate::proto::tx::*;
use crate::proto::wire::Flags;
use crate::proto::SECOND;
use proptest::prelude::*;

/// Port of the sender, where it makes no difference.
const PORT: u16 = 4000;

fn policy(packets: u32, bytes: u32) -> AckPolicy {
    AckPolicy {
        max_unacked_packets: packets,
        max_unacked_bytes: bytes,
    }
}

/// Sends `count` messages and returns the positions of those that ask for an acknowledgement.
fn requests(tx: &mut SendState, count: usize, len: u32) -> Vec<usize> {
    (0..count)
        .filter(|_| {
            let sequence = tx.assign(PORT);
            tx.transmit(sequence, len, Pressure::Low) == Flags::ACK_REQUIRED
        })
        .collect()
}

#[test]
fn sequences_start_at_one() {
    let mut tx = SendState::new(AckPolicy::default());
    assert_eq!(tx.next_sequence(), 1);
    assert_eq!(
        [tx.assign(PORT), tx.assign(PORT), tx.assign(PORT)],
        [1, 2, 3]
    );
    assert_eq!(tx.next_sequence(), 4);
}

#[test]
fn each_retransmission_is_counted() {
    let mut tx = SendState::new(policy(2, 100));
    for sequence in 1..=3 {
        assert_eq!(tx.assign(PORT), sequence);
        tx.transmit(sequence, 100, Pressure::Low);
    }
    assert_eq!(tx.retransmissions(), 0);
    for expected in 1..=3 {
        tx.reconnected();
        tx.retransmit();
        assert_eq!(tx.retransmissions(), expected);
    }
}

/// Neither messages of an earlier life nor unsent ones are acknowledged.
#[test]
fn numbers_continue_those_of_earlier_connections() {
    for first in [1, 2, 1000, u64::MAX / 2] {
        let mut tx = SendState::new(AckPolicy::default());
        tx.begin_at(first);
        assert!(tx.is_unused());
        assert_eq!(tx.handle_ack(0), Ok(None));
        assert_eq!(tx.handle_ack(first - 1), Ok(None));
        assert!(tx.handle_ack(first).is_err());
        assert_eq!(tx.assign(PORT), first);
        assert!(tx.is_unused() && tx.handle_ack(first).is_err());
        assert_eq!(tx.transmit(first, 0, Pressure::Low), Flags::NONE);
        assert!(!tx.is_unused());
        assert_eq!(tx.handle_ack(first - 1), Ok(None));
        assert_eq!(tx.handle_ack(first), Ok(Some(first)));
        assert_eq!(tx.next_sequence(), first + 1);
        // Works as if earlier messages were acknowledged: under pressure the sender asks at once.
        let next = tx.assign(PORT);
        let flags = tx.transmit(next, 0, Pressure::High);
        assert_eq!(flags, Flags::ACK_REQUIRED);
    }
}

/// A new life begins after all sequence numbers that the last one can have used. Its numbers stay
/// readable.
#[test]
fn a_life_begins_at_its_time() {
    // 1 January of each year.
    let [in_2026, in_2043, in_2051] = [1_767_225_600, 2_303_683_200, 2_556_144_000];
    let at = |seconds: u64| first_sequence(seconds * SECOND);
    assert_eq!(at(0), 1);
    assert!(at(in_2026 + 1) - at(in_2026) > 3_900_000);
    assert!(at(in_2043) < 1 << f64::MANTISSA_DIGITS);
    assert!(at(in_2051).to_string().len() <= 16);
}

#[test]
fn asks_for_an_ack_once_the_packets_are_used_up() {
    let mut tx = SendState::new(AckPolicy::default());
    assert_eq!(requests(&mut tx, 100, 0), [32, 65, 98]);
}

#[test]
fn asks_for_an_ack_once_the_bytes_are_used_up() {
    let mut tx = SendState::new(policy(u32::MAX, 1000));
    assert_eq!(requests(&mut tx, 9, 400), [2, 5, 8]);
    let mut tx = SendState::new(policy(u32::MAX, 1000));
    assert_eq!(requests(&mut tx, 4, 1001), [0, 1, 2, 3]);
    let mut tx = SendState::new(policy(u32::MAX, 1000));
    assert_eq!(requests(&mut tx, 4, 1000), [1, 3]);
}

#[test]
fn a_sender_that_runs_short_asks_early() {
    let mut tx = SendState::new(AckPolicy::default());
    let mut send = |pressure| {
        let sequence = tx.assign(PORT);
        let asks = tx.transmit(sequence, 0, pressure) == Flags::ACK_REQUIRED;
        (sequence, asks)
    };
    assert_eq!(send(Pressure::Low), (1, false));
    assert_eq!(send(Pressure::High), (2, true));
    // The answer to that is on its way.
    assert_eq!(send(Pressure::High), (3, false));
    // It may not be enough for a waiting sender, so this pressure always asks.
    assert_eq!(send(Pressure::Full), (4, true));
    assert_eq!(send(Pressure::Full), (5, true));
    assert_eq!(tx.handle_ack(4), Ok(Some(4)));
    let sequence = tx.assign(PORT);
    assert_eq!(tx.transmit(sequence, 0, Pressure::High), Flags::NONE);
    assert_eq!(tx.handle_ack(5), Ok(Some(5)));
    let sequence = tx.assign(PORT);
    assert_eq!(
        tx.transmit(sequence, 0, Pressure::High),
        Flags::ACK_REQUIRED
    );
    // One request does not suffice forever.
    for count in 0..9 {
        let sequence = tx.assign(PORT);
        let asks = tx.transmit(sequence, 0, Pressure::High) == Flags::ACK_REQUIRED;
        assert_eq!(asks, count == 8);
    }
    // Requests on the old connection do not count on a new one.
    tx.reconnected();
    let sequence = tx.assign(PORT);
    assert_eq!(
        tx.transmit(sequence, 0, Pressure::High),
        Flags::ACK_REQUIRED
    );
}

#[test]
fn an_acknowledged_message_has_delivered_its_ack() {
    let mut tx = SendState::new(AckPolicy::default());
    requests(&mut tx, 4, 0);
    assert_eq!(tx.take_ack_known_to_peer(), 0);
    // First no acknowledgement to report, then 7, then 9.
    for (sequence, ack) in [(1, 0), (2, 7), (3, 9)] {
        tx.note_piggyback(sequence, ack);
    }
    tx.handle_ack(1).unwrap();
    assert_eq!(tx.clone().take_ack_known_to_peer(), 0);
    tx.handle_ack(3).unwrap();
    assert_eq!(tx.clone().take_ack_known_to_peer(), 7);
    tx.note_piggyback(4, 9);
    assert_eq!(tx.clone().take_ack_known_to_peer(), 7);
    tx.handle_ack(4).unwrap();
    assert_eq!(tx.take_ack_known_to_peer(), 9);
    // Reported once: on the next connection the peer may have restarted.
    assert_eq!(tx.take_ack_known_to_peer(), 0);
    requests(&mut tx, 1, 0);
    tx.note_piggyback(5, 9);
    tx.reconnected();
    tx.handle_ack(5).unwrap();
    assert_eq!(tx.take_ack_known_to_peer(), 0);
}

#[test]
fn retransmission_and_reconnect_refill_the_budget() {
    let mut tx = SendState::new(policy(2, 1000));
    assert_eq!(requests(&mut tx, 2, 0), []);
    assert_eq!(
        tx.retransmit(),
        Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED)
    );
    assert_eq!(requests(&mut tx, 2, 0), []);
    tx.reconnected();
    assert_eq!(requests(&mut tx, 3, 0), [2]);
}

#[test]
fn an_ack_of_something_never_sent_is_an_error() {
    let mut tx = SendState::new(AckPolicy::default());
    let first = tx.assign(PORT);
    let second = tx.assign(PORT);
    assert_eq!(tx.handle_ack(0), Ok(None));
    assert_eq!(tx.handle_ack(1), Err(AckError { ack: 1, sent: 0 }));
    tx.transmit(first, 10, Pressure::Low);
    assert_eq!(tx.handle_ack(second), Err(AckError { ack: 2, sent: 1 }));
    assert_eq!(
        tx.handle_ack(u64::MAX),
        Err(AckError {
            ack: u64::MAX,
            sent: 1
        })
    );
    assert_eq!(tx.handle_ack(1), Ok(Some(1)));
    assert_eq!(tx.handle_ack(1), Ok(None));
}

#[test]
fn an_ack_may_cover_a_cancelled_message() {
    let mut tx = SendState::new(AckPolicy::default());
    let (_cancelled, sent) = (tx.assign(PORT), tx.assign(PORT));
    tx.transmit(sent, 0, Pressure::Low);
    assert_eq!(tx.handle_ack(1), Ok(Some(1)));
    assert_eq!(tx.handle_ack(2), Ok(Some(2)));
}

proptest! {
    /// Compares with a model that keeps every message in a list.
    #[test]
    fn acks_against_a_model(steps in prop::collection::vec((0u8..4, 0u64..40), 0..200)) {
        let mut tx = SendState::new(AckPolicy::default());
        let mut queued = Vec::new();
        let mut unacked = Vec::new();
        let mut highest = 0;
        for (step, number) in steps {
            match step {
                0 => queued.push(tx.assign(PORT)),
                1 if !queued.is_empty() => {
                    let sequence = queued.remove(0);
                    tx.transmit(sequence, 1, Pressure::High);
                    highest = sequence;
                    unacked.push(sequence);
                }
                2 => drop(queued.pop()),
                _ => {
                    let before = unacked.len();
                    match tx.handle_ack(number) {
                        Ok(Some(ack)) => {
                            prop_assert!(number <= highest);
                            unacked.retain(|sequence| *sequence > ack);
                        }
                        Ok(None) => prop_assert!(unacked.iter().all(|s| *s > number)),
                        Err(error) => {
                            prop_assert_eq!(error, AckError { ack: number, sent: highest });
                            prop_assert!(number > highest);
                        }
                    }
                    prop_assert!(unacked.len() <= before);
                }
            }
        }
    }
}

#[test]
fn the_last_message_of_a_port_is_known() {
    let mut tx = SendState::new(AckPolicy::default());
    let last = |tx: &SendState| [7, 8, 9, 7 + 32].map(|port| tx.last_of(port));
    assert_eq!(last(&tx), [0; 4]);
    assert_eq!([7, 8, 7].map(|port| tx.assign(port)), [1, 2, 3]);
    // The last entry belongs to another port in the same bucket.
    assert_eq!(last(&tx), [3, 2, 0, 3]);
    assert_eq!(tx.assign(7 + 32), 4);
    assert_eq!(last(&tx), [4, 2, 0, 4]);
}

proptest! {
    /// No message follows the last one of its port.
    #[test]
    fn last_messages_against_a_model(ports in prop::collection::vec(any::<u16>(), 0..200)) {
        let mut tx = SendState::new(AckPolicy::default());
        let mut queued: Vec<(u16, u64)> = Vec::new();
        for port in ports {
            queued.push((port, tx.assign(port)));
            for (port, sequence) in &queued {
                prop_assert!(tx.last_of(*port) >= *sequence);
            }
        }
    }
}

#[test]
fn a_new_policy_counts_from_the_next_message_on() {
    let mut tx = SendState::new(policy(1, 1000));
    assert_eq!(requests(&mut tx, 2, 1), [1]);
    tx.set_policy(policy(0, 1000));
    assert_eq!(requests(&mut tx, 3, 1), [0, 1, 2]);
    tx.set_policy(policy(100, 10));
    assert_eq!(requests(&mut tx, 3, 10), [1]);
}
