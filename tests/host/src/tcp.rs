// SPDX-License-Identifier: GPL-2.0

//! Tests of the pure parts of RDS over TCP: the stream, the marks and the roles.

use crate::proto::{
    exthdr,
    tcp_marks::{Marks, StreamMark},
    tcp_role::{self, Purpose},
    tcp_stream::{self, Announced, NotContinued, Outgoing},
    wire::{self, Flags, FragmentSize, Header, HeaderError, CONG_MAP_BYTES, MAX_MESSAGE},
};
use proptest::prelude::*;
use std::{collections::VecDeque, net::Ipv6Addr};

fn header(sequence: u64, len: u32) -> Header {
    Header {
        sequence,
        len,
        ack: 77,
        sport: 4000,
        dport: 5000,
        ..Header::default()
    }
}

fn bytes(header: &Header) -> [u8; Header::LEN] {
    let mut bytes = [0; Header::LEN];
    header.emit(&mut bytes);
    bytes
}

#[test]
fn a_message_has_one_header() {
    let mut outgoing = Outgoing::new();
    let header = bytes(&header(9, 8192 + 100));
    let first = outgoing.push(&header, 8192).unwrap();
    assert!(first.header.is_some());
    assert_eq!(first.ends, 0);
    let last = outgoing.push(&header, 100).unwrap();
    assert_eq!(last.header, None);
    assert_eq!(last.ends, 9);
}

#[test]
fn a_frame_has_to_continue_its_message() {
    let mut outgoing = Outgoing::new();
    let long = bytes(&header(9, 8192));
    assert_eq!(outgoing.push(&long, 8193), Err(NotContinued));
    outgoing.push(&long, 8000).unwrap();
    assert_eq!(outgoing.push(&long, 193), Err(NotContinued));
    assert_eq!(outgoing.push(&long, 0), Err(NotContinued));
    assert!(outgoing.push(&long, 192).is_ok());
}

#[test]
fn the_stream_has_no_checksum() {
    let sent = Outgoing::new().push(&bytes(&header(9, 0)), 0).unwrap();
    let sent = sent.header.unwrap();
    assert_eq!(sent[30..32], [0, 0]);
    assert_eq!(Header::parse(&sent), Ok(header(9, 0)));
}

#[test]
fn an_acknowledgement_alone_is_a_control_frame() {
    let ack = Header {
        ack: 5,
        ..Header::default()
    };
    let piece = Outgoing::new().push(&bytes(&ack), 0).unwrap();
    assert_eq!(piece.ends, 0);
    let mut sent = piece.header.unwrap();
    // C RDS ignores exactly this: the flag of a congestion update, and another length than a map's.
    assert_eq!(sent[24], 0x01);
    assert_eq!(sent[16..20], [0; 4]);
    assert_eq!(sent[0..8], [0; 8]);
    assert_eq!(tcp_stream::announced(&mut sent), Ok(Announced::Control));
    assert_eq!(Header::parse(&sent), Ok(ack));
    assert!(Header::parse(&sent).unwrap().is_pure_ack(0));
}

#[test]
fn a_ping_is_no_control_frame() {
    let ping = Header {
        dport: 0,
        ..header(3, 0)
    };
    let piece = Outgoing::new().push(&bytes(&ping), 0).unwrap();
    assert_eq!(piece.ends, 3);
    let mut sent = piece.header.unwrap();
    assert_eq!(tcp_stream::announced(&mut sent), Ok(Announced::Payload(0)));
}

#[test]
fn a_map_introduces_a_node_that_acknowledges() {
    let map = Header::congestion_update(0, 0x0102_0304, 0);
    let mut outgoing = Outgoing::new();
    let mut sent = outgoing.push(&bytes(&map), CONG_MAP_BYTES).unwrap();
    let header = sent.header.as_mut().unwrap();
    assert!(tcp_stream::acknowledges(header));
    assert_eq!(sent.ends, 0);
    assert_eq!(
        header[32..],
        [6, 1, 2, 3, 4, 7, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    let announced = tcp_stream::announced(header);
    assert_eq!(announced, Ok(Announced::Payload(CONG_MAP_BYTES)));
    assert_eq!(exthdr::CAP_TCP_ACK & exthdr::CAP_PACKED, 0);
}

#[test]
fn maps_differ_from_messages_of_their_length() {
    let map = Header::congestion_update(0, 1, 0);
    assert!(tcp_stream::is_map(&bytes(&map)));
    assert!(!tcp_stream::is_map(&bytes(&header(1, CONG_MAP_BYTES))));
}

#[test]
fn a_map_introduces_another_path() {
    for path in 0..8 {
        let map = Header::congestion_update(0, 9, path);
        let mut sent = Outgoing::new().push(&bytes(&map), CONG_MAP_BYTES).unwrap();
        let header = sent.header.as_mut().unwrap();
        assert_eq!(tcp_stream::introduced_path(header), Some(path));
        let index = if path == 0 {
            [0; 6]
        } else {
            [8, path, 0, 0, 0, 0]
        };
        assert_eq!(header[32..42], [6, 0, 0, 0, 9, 7, 0x40, 0, 0, 0]);
        assert_eq!(header[42..], index);
        let announced = tcp_stream::announced(header);
        assert_eq!(announced, Ok(Announced::Payload(CONG_MAP_BYTES)));
    }
    let of_c = Header {
        exthdr: [0; exthdr::SPACE],
        ..Header::congestion_update(0, 1, 3)
    };
    assert_eq!(tcp_stream::introduced_path(&bytes(&of_c)), None);
}

#[test]
fn only_bytes_without_a_message_may_be_lost() {
    let of_c = Header {
        exthdr: [0; exthdr::SPACE],
        ..Header::congestion_update(0, 1, 0)
    };
    // A part of the header behind the map.
    let map_end = 48 + CONG_MAP_BYTES;
    assert_eq!(tcp_stream::without_message(&bytes(&of_c)), map_end + 47);
    assert_eq!(tcp_stream::without_message(&bytes(&of_c)[..47]), 47);
    // C asks for the number of paths behind it, and a message of one byte may follow.
    let probe = Header {
        sport: 1,
        dport: 0,
        ..header(1, 0)
    };
    let mut stream = bytes(&of_c).to_vec();
    stream.resize(map_end as usize, 0);
    stream.extend(bytes(&probe));
    assert_eq!(stream.len(), tcp_stream::BEGINNING);
    assert_eq!(tcp_stream::without_message(&stream), map_end + 48 + 47);
    stream.extend(bytes(&header(2, 1)));
    assert_eq!(tcp_stream::without_message(&stream), map_end + 48 + 48);
    // A message without payload has the same length, and must not be lost.
    stream.truncate(map_end as usize);
    stream.extend(bytes(&header(1, 0)));
    assert_eq!(tcp_stream::without_message(&stream), map_end + 47);
    assert_eq!(tcp_stream::without_message(&bytes(&header(1, 0))), 47);
    assert_eq!(tcp_stream::without_message(&bytes(&header(1, 5))), 52);
    // This peer sends again what was not delivered.
    let mut map = bytes(&Header::congestion_update(0, 1, 0));
    let sent = Outgoing::new().push(&map, CONG_MAP_BYTES).unwrap();
    map = sent.header.unwrap();
    assert_eq!(tcp_stream::without_message(&map), u32::MAX);
}

#[test]
fn others_acknowledge_nothing() {
    let of_c = Header {
        exthdr: [0; exthdr::SPACE],
        ..Header::congestion_update(0, 1, 0)
    };
    assert!(!tcp_stream::acknowledges(&bytes(&of_c)));
    // The same extensions in another header.
    let message = Header {
        exthdr: exthdr::tcp_introduction(1, 0),
        ..header(1, 0)
    };
    assert!(!tcp_stream::acknowledges(&bytes(&message)));
    assert!(!tcp_stream::acknowledges(&bytes(
        &Header::congestion_update(0, 1, 0)
    )));
}

#[test]
fn wrong_lengths_end_the_connection() {
    let mut long = bytes(&header(1, MAX_MESSAGE + 1));
    let error = HeaderError::TooLong(MAX_MESSAGE + 1);
    assert_eq!(tcp_stream::announced(&mut long), Err(error));
    let mut short = bytes(&Header {
        len: 8191,
        flags: Flags::CONG_BITMAP,
        ..Header::default()
    });
    let error = HeaderError::CongLength(8191);
    assert_eq!(tcp_stream::announced(&mut short), Err(error));
}

#[test]
fn frames_are_as_long_as_fragments() {
    for (len, size) in [
        (0, FragmentSize::K4),
        (4096, FragmentSize::K4),
        (4097, FragmentSize::K8),
        (8192, FragmentSize::K8),
        (MAX_MESSAGE, FragmentSize::K8),
    ] {
        assert_eq!(tcp_stream::cut(len, FragmentSize::K8), size, "{len}");
    }
    assert_eq!(tcp_stream::part(9000, FragmentSize::K8), 8192);
    assert_eq!(tcp_stream::part(808, FragmentSize::K8), 808);
}

#[test]
fn the_port_is_that_of_c_rds() {
    assert_eq!(tcp_stream::PORT, 16385);
}

/// A mark that was noted, for comparison.
struct Noted {
    end: u64,
    sequence: u64,
}

proptest! {
    /// Messages of any size go through the stream, and are found in it again.
    #[test]
    fn a_stream_has_its_messages(lens in prop::collection::vec(0u32..40_000, 1..20)) {
        let mut outgoing = Outgoing::new();
        let mut stream = Vec::new();
        for (sequence, len) in (1..).zip(&lens) {
            let header = bytes(&header(sequence, *len));
            for index in 0..wire::fragments(*len, FragmentSize::K8) {
                let part = wire::fragment(*len, index, FragmentSize::K8).unwrap();
                let piece = outgoing.push(&header, part.len).unwrap();
                prop_assert_eq!(piece.header.is_some(), index == 0);
                prop_assert_eq!(piece.ends, if part.last { sequence } else { 0 });
                stream.extend(piece.header.iter().flatten());
                stream.extend(vec![sequence as u8; part.len as usize]);
            }
        }
        let mut rest = &stream[..];
        for (sequence, len) in (1u64..).zip(&lens) {
            let (head, after) = rest.split_first_chunk().unwrap();
            let mut head = *head;
            let announced = tcp_stream::announced(&mut head);
            prop_assert_eq!(announced, Ok(Announced::Payload(*len)));
            prop_assert_eq!(Header::parse(&head).unwrap().sequence, sequence);
            let size = tcp_stream::cut(*len, FragmentSize::K8);
            let (mut left, mut parts) = (*len, 0);
            while left > 0 {
                left -= tcp_stream::part(left, size);
                parts += 1;
            }
            prop_assert_eq!(parts.max(1), wire::fragments(*len, FragmentSize::K8));
            let (payload, after) = after.split_at(*len as usize);
            prop_assert!(payload.iter().all(|byte| *byte == sequence as u8));
            rest = after;
        }
        prop_assert!(rest.is_empty());
    }

    /// No bytes make the parser fail other than by an error.
    #[test]
    fn any_header_has_a_result(mut head: [u8; Header::LEN]) {
        if let Ok(Announced::Payload(len)) = tcp_stream::announced(&mut head) {
            prop_assert!(len <= MAX_MESSAGE);
        }
    }

    /// A message is acknowledged when its last byte is, whatever the numbers of the connection are.
    #[test]
    fn marks_follow_the_acknowledgements(
        first: u32,
        steps in prop::collection::vec((0u32..100_000, any::<bool>(), 0u32..150_000), 1..200),
        more_memory_after in 0usize..200,
    ) {
        let mut memory = vec![StreamMark::default(); 16];
        let mut marks = Marks::new(first);
        let mut noted: VecDeque<Noted> = VecDeque::new();
        let (mut given, mut acked, mut sequence) = (0u64, 0u64, 0);
        let (mut begin, mut end) = (first, first);
        for (step, (bytes, ends, more)) in steps.into_iter().enumerate() {
            if step == more_memory_after {
                let mut larger = vec![StreamMark::default(); 24];
                marks.relocate(&memory, &mut larger);
                memory = larger;
            }
            prop_assert_eq!(marks.has_room(&memory, 1), noted.len() < memory.len());
            let ends = ends && noted.len() < memory.len();
            sequence += u64::from(ends);
            given += u64::from(bytes);
            marks.give(&mut memory, bytes as usize, if ends { sequence } else { 0 });
            if ends {
                noted.push_back(Noted { end: given, sequence });
                (begin, end) = (end, first.wrapping_add(given as u32));
            }
            prop_assert_eq!(marks.last(), (begin, end));
            acked = (acked + u64::from(more)).min(given);
            let mut last = None;
            while noted.front().is_some_and(|it| it.end <= acked) {
                last = noted.pop_front().map(|it| it.sequence);
            }
            let una = first.wrapping_add(acked as u32);
            prop_assert_eq!(marks.acknowledge(&memory, una), last);
            prop_assert_eq!(marks.is_empty(), noted.is_empty());
        }
    }

    /// A port is in the range and belongs to the path, and all such ports are tried once.
    #[test]
    fn ports_belong_to_their_path(low: u16, high: u16, index in 0u8..8, random: u32) {
        let mut ports: Vec<u16> = (0..)
            .map_while(|attempt| tcp_role::port(low, high, index, random, attempt))
            .collect();
        ports.sort_unstable();
        let all: Vec<u16> = (low..=high).filter(|port| port % 8 == u16::from(index)).collect();
        prop_assert_eq!(&ports, &all);
        prop_assert!(ports.iter().all(|port| tcp_role::path_of(*port) == index));
    }

    /// Exactly one of two nodes makes the connections that carry messages.
    #[test]
    fn one_node_connects(a: u128, b: u128) {
        let (a, b) = (Ipv6Addr::from_bits(a), Ipv6Addr::from_bits(b));
        prop_assume!(a != b);
        let carries = |local, peer| tcp_role::purpose(local, peer) == Purpose::Carry;
        prop_assert_ne!(carries(a, b), carries(b, a));
        prop_assert_eq!(carries(a, b), b < a);
    }
}
