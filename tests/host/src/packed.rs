// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/packed.rs`.

use crate::proto::packed::*;
use crate::proto::rx::{RecvState, Step};
use crate::proto::wire::*;
use proptest::prelude::*;

fn message(sequence: u64, payload: &[u8]) -> Header {
    Header {
        sequence,
        len: payload.len() as u32,
        sport: 7,
        dport: 8,
        ..Header::default()
    }
}

/// Packs as many of the messages as fit. Returns the frame and their number.
fn pack(payloads: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let mut frame = vec![0xaa; 5000];
    let mut packer = Packer::new(&mut frame);
    let mut count = 0;
    for (payload, sequence) in payloads.iter().zip(1..) {
        let has_room = packer.has_room(payload.len() as u32);
        let before = packer.len();
        assert_eq!(
            packer.push(&message(sequence, payload), payload),
            has_room,
            "has_room() is right"
        );
        if !has_room {
            assert_eq!(packer.len(), before);
            break;
        }
        count += 1;
    }
    let len = packer.len() as usize;
    assert!(frame[len..].iter().all(|byte| *byte == 0xaa));
    frame.truncate(len);
    (frame, count)
}

fn unpack(frame: &[u8]) -> Result<Vec<(Header, Vec<u8>)>, SplitError> {
    Unpacker::new(frame)
        .map(|message| message.map(|(header, payload)| (header, payload.to_vec())))
        .collect()
}

#[test]
fn layout() {
    let (frame, count) = pack(&[b"abc".to_vec(), vec![], b"12345678".to_vec()]);
    assert_eq!(count, 3);
    // 48 + 3, padded to 56; 48; 48 + 8.
    assert_eq!(frame.len(), 56 + 48 + 56);
    assert_eq!(&frame[48..56], b"abc\0\0\0\0\0");
    assert_eq!(&frame[152..], b"12345678");
    for (at, sequence) in [(0, 1), (56, 2), (104, 3)] {
        let header = Header::parse(frame[at..at + 48].try_into().unwrap()).unwrap();
        assert_eq!(header.sequence, sequence);
    }
}

#[test]
fn a_frame_has_room_for_a_header_and_4096_bytes() {
    let (frame, count) = pack(&vec![vec![1; 64]; 100]);
    assert_eq!(count, 37);
    assert_eq!(37 * bytes(64), LONGEST_FRAME);
    assert_eq!(pack(&vec![vec![1; LONGEST as usize]; 9]).1, 7);
    assert_eq!((bytes(0), bytes(1), bytes(u32::MAX)), (48, 56, u32::MAX));
    assert!(frame.len() <= 48 + 4096);
    assert!(frame.len() + 112 > 48 + 4096);
    let (frame, count) = pack(&[vec![1; 4096]]);
    assert_eq!((frame.len(), count), (48 + 4096, 1));
    assert_eq!(pack(&[vec![1; 4097]]).1, 0);
}

#[test]
fn short_buffer() {
    let mut frame = [0; 50];
    let mut packer = Packer::new(&mut frame);
    assert!(packer.has_room(2));
    assert!(!packer.has_room(3));
    assert!(!packer.push(&message(1, b"abc"), b"abc"));
    assert!(packer.push(&message(1, b"ab"), b"ab"));
    assert!(!packer.has_room(0));
    assert!(!packer.push(&message(2, b""), b""));
}

#[test]
fn rules() {
    let (frame, _) = pack(&[b"abc".to_vec(), b"1234".to_vec()]);
    assert_eq!(unpack(&[]), Ok(vec![]));
    // Cut in the header, in the payload, in the padding, and behind it.
    assert_eq!(unpack(&frame[..47]), Err(SplitError::Short(47)));
    assert_eq!(unpack(&frame[..50]), Err(SplitError::Cut(3, 2)));
    assert_eq!(unpack(&frame[..51]).map(|found| found.len()), Ok(1));
    assert_eq!(unpack(&frame[..53]), Err(SplitError::Short(2)));
    assert_eq!(unpack(&frame[..56]), Err(SplitError::Short(5)));
    assert_eq!(unpack(&frame[..60]), Err(SplitError::Short(4)));
    assert_eq!(
        unpack(&frame[..frame.len() - 1]),
        Err(SplitError::Cut(4, 3))
    );
    let long = pack(&[vec![1; 4096]]).0;
    assert_eq!(unpack(&long).map(|found| found.len()), Ok(1));
    let long = [long, vec![0; 56]].concat();
    assert_eq!(unpack(&long), Err(SplitError::Long(48 + 4096 + 56)));
    let mut bad = frame.clone();
    bad[56] ^= 1;
    assert_eq!(unpack(&bad), Err(SplitError::Header(HeaderError::Checksum)));
}

#[test]
fn peers_announce_that_they_accept_packed_frames() {
    let mut rx = RecvState::new();
    let map = Header::congestion_update(0, 5, 0);
    assert!(!rx.takes_packed());
    assert!(rx.handle(&map, 8192).is_ok());
    assert!(rx.takes_packed() && rx.peer_sent_generation());
    rx.link_lost();
    assert!(!rx.takes_packed());
    // The map as C RDS sends it.
    let map = Header {
        exthdr: [0; 16],
        ..map
    };
    assert!(rx.handle(&map, 8192).is_ok());
    assert!(!rx.takes_packed());
}

proptest! {
    #[test]
    fn packed_messages_are_unpacked(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..60),
    ) {
        let (frame, count) = pack(&payloads);
        let found = unpack(&frame).unwrap();
        prop_assert_eq!(found.len(), count);
        let mut rx = RecvState::new();
        for (((header, payload), sent), sequence) in found.iter().zip(&payloads).zip(1..) {
            prop_assert_eq!(header.sequence, sequence);
            prop_assert_eq!(payload, sent);
            let whole = matches!(
                rx.handle(header, payload.len()),
                Ok(Step::Data { first: true, last: true, duplicate: false, .. })
            );
            prop_assert!(whole);
        }
    }

    /// The parser terminates for any frame. The messages lie within the frame, one behind the
    /// other.
    #[test]
    fn any_frame(
        frame in prop::collection::vec(any::<u8>(), 0..5000),
        lens in prop::collection::vec(0u32..700, 0..8),
    ) {
        let mut frame = frame;
        // Some valid headers.
        let mut at = 0;
        for len in lens {
            let Some(head) = frame.get_mut(at..at + 48) else { break };
            Header { len, ..Header::default() }.emit(head.try_into().unwrap());
            at += (48 + len as usize).next_multiple_of(8);
        }
        let mut end = frame.as_ptr() as usize;
        for message in Unpacker::new(&frame) {
            let Ok((header, payload)) = message else { continue };
            prop_assert_eq!(payload.len(), header.len as usize);
            let start = payload.as_ptr() as usize;
            prop_assert!(start >= end + 48);
            end = start + payload.len();
        }
        prop_assert!(end <= frame.as_ptr() as usize + frame.len());
    }
}
