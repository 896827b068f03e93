// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/rx.rs`.

use crate::proto::rx::*;
use crate::proto::wire::*;
use proptest::prelude::*;

fn data(sequence: u64, len: u32) -> Header {
    Header {
        sequence,
        len,
        sport: 1000,
        dport: 2000,
        ..Header::default()
    }
}

fn retransmitted(sequence: u64) -> Header {
    Header {
        flags: Flags::RETRANSMITTED,
        ..data(sequence, 0)
    }
}

/// Feeds a whole message and returns the step of its last fragment.
fn feed(rx: &mut RecvState, header: &Header) -> Result<Step, RxError> {
    let mut step = Ok(Step::PureAck);
    for index in 0..fragments(header.len, FragmentSize::K4) {
        let piece = fragment(header.len, index, FragmentSize::K4).unwrap();
        step = rx.handle(header, piece.len as usize);
    }
    step
}

fn duplicate(step: Result<Step, RxError>) -> bool {
    matches!(
        step,
        Ok(Step::Data {
            duplicate: true,
            ..
        })
    )
}

#[test]
fn one_fragment() {
    let mut rx = RecvState::new();
    for (sequence, len) in [(1, 0), (2, 1), (3, 4096)] {
        assert_eq!(
            rx.handle(&data(sequence, len), len as usize),
            Ok(Step::Data {
                offset: 0,
                len,
                first: true,
                last: true,
                duplicate: false
            })
        );
        assert_eq!(rx.ack(), sequence);
        assert_eq!(rx.next_sequence(), sequence + 1);
    }
}

#[test]
fn three_fragments_with_an_ack_between() {
    let mut rx = RecvState::new();
    let header = data(1, 8193);
    let step = |offset, len, last| Step::Data {
        offset,
        len,
        first: offset == 0,
        last,
        duplicate: false,
    };
    assert_eq!(rx.handle(&header, 4096), Ok(step(0, 4096, false)));
    let ack = Header {
        ack: 99,
        ..Header::default()
    };
    assert_eq!(rx.handle(&ack, 0), Ok(Step::PureAck));
    let other_ack = Header {
        ack: 12,
        credit: 3,
        ..header
    };
    assert_eq!(rx.handle(&other_ack, 4096), Ok(step(4096, 4096, false)));
    assert!(rx.ack() == 0 && rx.is_unused());
    assert_eq!(rx.handle(&header, 1), Ok(step(8192, 1, true)));
    assert!(rx.ack() == 1 && !rx.is_unused());
}

#[test]
fn wrong_fragment_size() {
    for (len, payload, expected) in [
        (0, 1, 0),
        (1, 0, 1),
        (1, 2, 1),
        (4096, 0, 4096),
        (4096, 4095, 4096),
        (16385, 16385, 4096),
        (4097, 1, 4096),
        (MAX_MESSAGE, 0, 4096),
        (1, usize::MAX, 1),
        (0, 1 << 32, 0),
    ] {
        let mut rx = RecvState::new();
        assert_eq!(
            rx.handle(&data(1, len), payload),
            Err(RxError::FragmentSize {
                expected,
                received: payload
            })
        );
        assert_eq!(rx.ack(), 0);
    }
    let mut rx = RecvState::new();
    rx.handle(&data(1, 4099), 4096).unwrap();
    for received in [0, 2, 4, 4096] {
        assert_eq!(
            rx.handle(&data(1, 4099), received),
            Err(RxError::FragmentSize {
                expected: 3,
                received
            })
        );
    }
    assert!(rx.handle(&data(1, 4099), 3).is_ok());
}

/// The first fragment determines the length of the following ones.
#[test]
fn fragments_of_any_agreed_size() {
    for size in [FragmentSize::K4, FragmentSize::K8, FragmentSize::K16] {
        let mut rx = RecvState::new();
        let header = data(1, 40000);
        for index in 0..fragments(header.len, size) {
            let piece = fragment(header.len, index, size).unwrap();
            assert_eq!(
                rx.handle(&header, piece.len as usize),
                Ok(Step::Data {
                    offset: piece.offset,
                    len: piece.len,
                    first: index == 0,
                    last: piece.last,
                    duplicate: false,
                })
            );
        }
        assert_eq!(rx.ack(), 1);
        // The size must not change within a message.
        rx.handle(&data(2, 40000), size.bytes() as usize).unwrap();
        for other in [0, 1, 4096, 8192, 16384] {
            if other != size.bytes() {
                let wrong = rx.clone().handle(&data(2, 40000), other as usize);
                assert_eq!(
                    wrong,
                    Err(RxError::FragmentSize {
                        expected: size.bytes(),
                        received: other as usize
                    })
                );
            }
        }
    }
    // A whole message in one frame, and sizes that are never negotiated.
    let mut rx = RecvState::new();
    assert!(rx.handle(&data(1, 16384), 16384).is_ok());
    for wrong in [1, 4095, 5000, 12288, 32768] {
        assert!(rx.handle(&data(2, 40000), wrong).is_err(), "{wrong}");
    }
}

/// This node cuts a stream itself, and not always in the same way.
#[test]
fn pieces_of_a_stream_have_any_length() {
    let header = data(1, 40000);
    for lengths in [
        &[40000][..],
        &[1, 39999],
        &[8192, 20000, 1, 11807],
        &[39999, 1],
    ] {
        let mut rx = RecvState::new();
        let mut offset = 0;
        for len in lengths {
            let last = offset + len == 40000;
            assert_eq!(
                rx.handle_of_stream(&header, *len as usize),
                Ok(Step::Data {
                    offset,
                    len: *len,
                    first: offset == 0,
                    last,
                    duplicate: false,
                })
            );
            offset += len;
        }
        assert_eq!(rx.ack(), 1);
    }
    let mut rx = RecvState::new();
    rx.handle_of_stream(&header, 30000).unwrap();
    for (received, expected) in [(0, 1), (10001, 10000), (usize::MAX, 10000)] {
        assert_eq!(
            rx.handle_of_stream(&header, received),
            Err(RxError::FragmentSize { expected, received })
        );
    }
    let empty = data(2, 0);
    assert_eq!(
        RecvState::new().handle_of_stream(&empty, 1),
        Err(RxError::FragmentSize {
            expected: 0,
            received: 1
        })
    );
}

#[test]
fn nothing_but_acks_may_come_between_fragments() {
    let first = data(5, 8192);
    let with = |change: fn(&mut Header)| {
        let mut header = first;
        change(&mut header);
        header
    };
    for header in [
        with(|h| h.sequence = 6),
        with(|h| h.len = 8191),
        with(|h| h.sport = 1001),
        with(|h| h.dport = 2001),
        with(|h| h.flags = Flags::ACK_REQUIRED),
        with(|h| h.flags = Flags::CONG_BITMAP),
    ] {
        let mut rx = RecvState::new();
        rx.handle(&first, 4096).unwrap();
        assert_eq!(
            rx.handle(&header, 4096),
            Err(RxError::Interleaved {
                expected: 5,
                received: header.sequence
            })
        );
        // The link is lost, and the message is sent again as a whole.
        rx.link_lost();
        assert!(feed(&mut rx, &first).is_ok());
        assert_eq!(rx.ack(), 5);
    }
}

#[test]
fn congestion_map() {
    let mut rx = RecvState::new();
    let map = Header {
        len: CONG_MAP_BYTES,
        flags: Flags::CONG_BITMAP,
        ..Header::default()
    };
    let step = |offset, last| Ok(Step::Congestion { offset, last });
    rx.handle(&data(3, 0), 0).unwrap();
    assert_eq!(rx.handle(&map, 4096), step(0, false));
    assert_eq!(rx.handle(&map, 4096), step(4096, true));
    assert_eq!(rx.handle(&map, 8192), step(0, true));
    assert_eq!(rx.handle(&map, 4096), step(0, false));
    assert_eq!((rx.ack(), rx.next_sequence()), (3, 4));
}

#[test]
fn duplicates_and_jumps() {
    let mut rx = RecvState::new();
    assert!(!duplicate(feed(&mut rx, &data(3, 0))));
    assert!(!duplicate(feed(&mut rx, &data(4, 0))));
    // Retransmitted and old: dropped, yet acknowledged.
    rx.link_lost();
    assert_eq!(rx.ack(), 0);
    assert!(duplicate(feed(&mut rx, &retransmitted(3))));
    assert_eq!((rx.ack(), rx.next_sequence()), (3, 5));
    assert!(duplicate(feed(&mut rx, &retransmitted(4))));
    assert_eq!(rx.ack(), 4);
    // Retransmitted, but new.
    assert!(!duplicate(feed(&mut rx, &retransmitted(5))));
    // Cancelled messages leave a gap.
    assert!(!duplicate(feed(&mut rx, &retransmitted(50))));
    // A peer that has restarted.
    assert!(!duplicate(feed(&mut rx, &data(1, 0))));
    assert_eq!((rx.ack(), rx.next_sequence()), (1, 2));
}

#[test]
fn sequences_wrap() {
    let mut rx = RecvState::new();
    assert!(!duplicate(feed(&mut rx, &data(u64::MAX - 1, 0))));
    assert!(!duplicate(feed(&mut rx, &retransmitted(u64::MAX))));
    assert_eq!(rx.next_sequence(), 0);
    assert!(duplicate(feed(&mut rx, &retransmitted(u64::MAX))));
    assert!(!duplicate(feed(&mut rx, &retransmitted(0))));
    assert_eq!(rx.next_sequence(), 1);
}

#[test]
fn an_ack_is_wanted_once_the_message_is_complete() {
    let mut rx = RecvState::new();
    let header = Header {
        flags: Flags::ACK_REQUIRED,
        ..data(1, 4097)
    };
    rx.handle(&header, 4096).unwrap();
    assert!(!rx.take_ack_required());
    rx.handle(&header, 1).unwrap();
    assert!(rx.take_ack_required());
    assert!(!rx.take_ack_required());
    rx.handle(&data(2, 0), 0).unwrap();
    assert!(!rx.take_ack_required());
    let header = Header {
        flags: Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED),
        ..data(1, 0)
    };
    assert!(duplicate(feed(&mut rx, &header)));
    rx.link_lost();
    assert!(!rx.take_ack_required());
}

#[test]
fn heartbeat_is_a_message() {
    let mut rx = RecvState::new();
    let heartbeat = Header {
        sequence: 1,
        flags: Flags::HB_PING.with(Flags::ACK_REQUIRED),
        ..Header::default()
    };
    assert!(matches!(
        rx.handle(&heartbeat, 0),
        Ok(Step::Data { last: true, .. })
    ));
    assert!(rx.take_ack_required());
    assert_eq!(rx.ack(), 1);
}

/// Starts a link, on which the map of a peer of this generation comes first.
fn new_link(rx: &mut RecvState, generation: u32) {
    rx.link_lost();
    let map = Header::congestion_update(0, generation, 0);
    assert!(matches!(
        feed(rx, &map),
        Ok(Step::Congestion {
            offset: 4096,
            last: true
        })
    ));
}

#[test]
fn a_restarted_peer_may_retransmit() {
    let mut rx = RecvState::new();
    new_link(&mut rx, 10);
    feed(&mut rx, &data(7, 0)).unwrap();
    new_link(&mut rx, 10);
    assert!(duplicate(feed(&mut rx, &retransmitted(7))));
    new_link(&mut rx, 11);
    assert!(!duplicate(feed(&mut rx, &retransmitted(3))));
    assert!(duplicate(feed(&mut rx, &retransmitted(3))));
    // A later map, or one without a generation, changes nothing.
    feed(&mut rx, &Header::congestion_update(0, 11, 0)).unwrap();
    assert_eq!(rx.next_sequence(), 4);
    let map = Header {
        exthdr: [0; 16],
        ..Header::congestion_update(0, 0, 0)
    };
    assert!(rx.peer_sent_generation());
    rx.link_lost();
    // The next link may be rejected.
    assert!(rx.peer_ran_rds_rust() && RecvState::at(rx.position()).peer_ran_rds_rust());
    feed(&mut rx, &map).unwrap();
    assert_eq!(rx.next_sequence(), 4);
    // C RDS may have replaced the peer.
    assert!(!rx.peer_sent_generation() && !rx.peer_ran_rds_rust());
    // A map that comes after messages changes nothing, either.
    feed(&mut rx, &data(1, 0)).unwrap();
    feed(&mut rx, &Header::congestion_update(0, 12, 0)).unwrap();
    assert_eq!(rx.next_sequence(), 2);
    new_link(&mut rx, 12);
    assert!(duplicate(feed(&mut rx, &retransmitted(1))));
}

/// Returns the state after messages 1 to 6 of a peer like C RDS, on one connection.
fn six_arrived() -> RecvState {
    let mut rx = RecvState::new();
    for sequence in 1..=6 {
        assert!(!duplicate(feed(&mut rx, &data(sequence, 5000))));
    }
    rx
}

/// Receives `first` to 6 again on a new connection. Returns how many are dropped.
fn dropped_from(rx: &mut RecvState, first: u64) -> usize {
    rx.link_lost();
    (first..=6)
        .filter(|sequence| duplicate(feed(rx, &retransmitted(*sequence))))
        .count()
}

#[test]
fn a_peer_without_a_generation_sends_the_oldest_first() {
    let mut rx = six_arrived();
    // These may be repeated, or be the first messages after a restart. The frames look the same.
    assert_eq!(dropped_from(&mut rx, 1), 6);
    assert_eq!(dropped_from(&mut rx, 4), 3);
    assert_eq!(dropped_from(&mut rx, 4), 3);
    // The peer had already released these messages.
    assert_eq!(dropped_from(&mut rx, 2), 0);
    assert_eq!(rx.next_sequence(), 7);
    // They were the first messages after its restart.
    assert_eq!(dropped_from(&mut rx, 2), 5);
    // A peer cannot restart in the middle of a connection.
    assert!(duplicate(feed(&mut rx, &retransmitted(1))));
}

#[test]
fn a_peer_without_a_generation_drops_acknowledged_messages() {
    let mut rx = six_arrived();
    rx.note_ack_known_to_peer(0);
    assert_eq!(dropped_from(&mut rx, 1), 6);
    rx.note_ack_known_to_peer(4);
    let mut kept = RecvState::at(rx.position());
    assert_eq!(dropped_from(&mut rx, 5), 2);
    assert_eq!(dropped_from(&mut kept, 4), 0);
    // The peer knew of more acknowledgements before.
    kept.note_ack_known_to_peer(6);
    kept.note_ack_known_to_peer(5);
    assert_eq!(dropped_from(&mut kept, 6), 0);
}

/// A handshake shows a restart, before any message of the link or behind some.
#[test]
fn a_known_restart_makes_all_messages_new() {
    let mut rx = six_arrived();
    assert_eq!(dropped_from(&mut rx, 1), 6);
    rx.link_lost();
    rx.note_restart();
    assert!(!duplicate(feed(&mut rx, &retransmitted(1))));
    assert!(!duplicate(feed(&mut rx, &retransmitted(2))));
    rx.note_restart();
    assert!(duplicate(feed(&mut rx, &retransmitted(2))));
}

#[test]
fn a_generation_says_more_than_numbers() {
    let mut rx = RecvState::new();
    new_link(&mut rx, 10);
    feed(&mut rx, &data(1, 0)).unwrap();
    feed(&mut rx, &data(2, 0)).unwrap();
    rx.note_ack_known_to_peer(2);
    new_link(&mut rx, 10);
    assert!(duplicate(feed(&mut rx, &retransmitted(2))));
}

proptest! {
    /// Each accepted piece continues the one before, and no message grows beyond its length,
    /// whatever the frames are.
    #[test]
    fn arbitrary_frames(frames in prop::collection::vec(
        (0u64..3, prop_oneof![Just(0u32), Just(8192), 0u32..20_000], 0u8..8,
         prop_oneof![Just(4096usize), Just(0), 0usize..5000]), 0..60)) {
        let mut rx = RecvState::new();
        let mut open: Option<(u32, u32)> = None;
        for (sequence, len, flags, payload) in frames {
            let header = Header { flags: Flags::from_bits(flags), ..data(sequence, len) };
            match rx.handle(&header, payload) {
                Ok(Step::Data { offset, len: piece, first, last, .. }) => {
                    prop_assert_eq!(piece as usize, payload);
                    prop_assert_eq!(first, offset == 0);
                    prop_assert_eq!(open.unwrap_or((0, len)), (offset, len));
                    prop_assert_eq!(last, offset + piece == len);
                    open = (!last).then_some((offset + piece, len));
                }
                Ok(Step::Congestion { offset, last }) => {
                    prop_assert_eq!(open.unwrap_or((0, len)), (offset, len));
                    open = (!last).then_some((offset + payload as u32, len));
                }
                Ok(Step::PureAck) => prop_assert!(false, "ports are set"),
                Err(_) => {
                    rx.link_lost();
                    open = None;
                }
            }
        }
    }
}

/// With a kept position, exactly the repeated messages are dropped. A restarted peer is detected.
#[test]
fn a_position_outlives_the_connection() {
    let mut rx = RecvState::new();
    let update = Header::congestion_update(0, 77, 0);
    for header in [update, data(5, 0), data(6, 0)] {
        feed(&mut rx, &header).unwrap();
    }
    let mut kept = RecvState::at(rx.position());
    assert!(!kept.is_unused() && kept.ack() == 0);
    assert_eq!(kept.position(), rx.position());
    // The caller knows it.
    let generation = std::num::NonZeroU32::new(7);
    assert_eq!(kept.position().probe_generation(), None);
    let known = kept.position().with_probe_generation(generation);
    assert_eq!(known.probe_generation(), generation);
    assert_eq!(RecvState::at(known).position(), kept.position());
    feed(&mut kept, &update).unwrap();
    assert!(duplicate(feed(&mut kept, &retransmitted(6))));
    assert!(!duplicate(feed(&mut kept, &retransmitted(7))));

    let mut kept = RecvState::at(rx.position());
    feed(&mut kept, &Header::congestion_update(0, 78, 0)).unwrap();
    assert!(!duplicate(feed(&mut kept, &retransmitted(1))));
    // A peer that never sent anything leaves no position.
    assert!(RecvState::at(RecvState::new().position()).is_unused());
}
