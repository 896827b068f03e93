// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/wire.rs`.

use crate::proto::wire::*;
use crate::vectors::HEADER;
use proptest::prelude::*;

/// Reference checksum of the header: 16-bit words, one after the other.
fn checksum(bytes: &[u8; Header::LEN]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

fn emit(header: &Header) -> [u8; Header::LEN] {
    let mut bytes = [0xaa; Header::LEN];
    header.emit(&mut bytes);
    bytes
}

/// Returns a header that the parser accepts.
fn any_header() -> impl Strategy<Value = Header> {
    (
        any::<(u64, u64, u16, u16, u8, u8, [u8; 16])>(),
        prop_oneof![0..=MAX_MESSAGE, Just(0), Just(MAX_MESSAGE)],
    )
        .prop_map(
            |((sequence, ack, sport, dport, flags, credit, exthdr), len)| {
                let cong = flags & 1 != 0;
                Header {
                    sequence,
                    ack,
                    len: if cong { CONG_MAP_BYTES } else { len },
                    sport,
                    dport,
                    flags: Flags::from_bits(if cong { flags & 0x3f } else { flags }),
                    credit,
                    exthdr,
                }
            },
        )
}

#[test]
fn golden_bytes() {
    let (header, bytes) = HEADER;
    assert_eq!(emit(&header), bytes);
    assert_eq!(Header::parse(&bytes), Ok(header));
}

#[test]
fn numbers_that_peers_rely_on() {
    let flags = [
        Flags::NONE,
        Flags::CONG_BITMAP,
        Flags::ACK_REQUIRED,
        Flags::RETRANSMITTED,
        Flags::HB_PING,
        Flags::HB_PONG,
        Flags::EXTENSION,
    ];
    assert_eq!(flags.map(Flags::bits), [0, 1, 2, 4, 8, 16, 32]);
    assert_eq!(
        (FragmentSize::default().bytes(), MAX_MESSAGE, CONG_MAP_BYTES),
        (4096, 1 << 20, 8192)
    );
    assert_eq!((PING_PORT, PROBE_PORT), (0, 1));
}

#[test]
fn congestion_update() {
    let header = Header::congestion_update(9, 0x0a0b_0c0d, 0);
    let bytes = emit(&header);
    assert_eq!(
        &bytes[..26],
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\x20\0\0\0\0\0\x01\0"
    );
    // The generation, and the flag that packed frames are accepted.
    assert_eq!(bytes[32..40], [6, 10, 11, 12, 13, 7, 0x80, 0]);
    assert_eq!(bytes[40..48], [0; 8]);
    assert_eq!(Header::parse(&bytes), Ok(header));
}

#[test]
fn checksum_zero_is_not_verified() {
    let (header, mut bytes) = HEADER;
    bytes[30] = 0;
    bytes[31] = 0;
    assert_eq!(Header::parse(&bytes), Ok(header));
}

#[test]
fn every_bit_flip_is_noticed() {
    let (_, bytes) = HEADER;
    for bit in 0..Header::LEN * 8 {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::parse(&bad), Err(HeaderError::Checksum), "bit {bit}");
    }
}

#[test]
fn length_limits() {
    let header = |len, flags| Header {
        len,
        flags,
        ..Header::default()
    };
    let parse = |len, flags| Header::parse(&emit(&header(len, flags)));
    assert!(parse(MAX_MESSAGE, Flags::NONE).is_ok());
    for len in [MAX_MESSAGE + 1, 1 << 31, u32::MAX] {
        assert_eq!(parse(len, Flags::NONE), Err(HeaderError::TooLong(len)));
    }
    assert!(parse(8192, Flags::CONG_BITMAP).is_ok());
    for len in [0, 8191, 8193, MAX_MESSAGE] {
        assert_eq!(
            parse(len, Flags::CONG_BITMAP),
            Err(HeaderError::CongLength(len))
        );
    }
    // Masked, not compared: another flag does not turn the map into a message to port 0.
    let flags = Flags::CONG_BITMAP.with(Flags::ACK_REQUIRED);
    assert_eq!(parse(5, flags), Err(HeaderError::CongLength(5)));
    assert!(parse(8192, flags).is_ok());
}

#[test]
fn unknown_flags() {
    let with = |bits, len| Header {
        flags: Flags::from_bits(bits),
        len,
        ..Header::default()
    };
    for bits in [0x08, 0x10, 0x40, 0x80, 0xfe] {
        let header = with(bits, 0);
        assert_eq!(Header::parse(&emit(&header)), Ok(header));
    }
    assert_eq!(
        Header::parse(&emit(&with(0x41, 8192))),
        Err(HeaderError::CongFlags(0x41))
    );
}

#[test]
fn pure_ack() {
    let ack = Header {
        ack: 7,
        ..Header::default()
    };
    assert!(ack.is_pure_ack(0));
    assert!(!ack.is_pure_ack(1));
    assert!(!Header { sport: 2, ..ack }.is_pure_ack(0));
    assert!(!Header { dport: 2, ..ack }.is_pure_ack(0));
    assert!(!Header { len: 1, ..ack }.is_pure_ack(0));
    for heartbeat in [Flags::HB_PING, Flags::HB_PONG] {
        let flags = heartbeat.with(Flags::ACK_REQUIRED);
        assert!(!Header { flags, ..ack }.is_pure_ack(0));
    }
}

#[test]
fn fragment_boundaries() {
    for (len, count) in [
        (0, 1),
        (1, 1),
        (4095, 1),
        (4096, 1),
        (4097, 2),
        (8191, 2),
        (8192, 2),
        (8193, 3),
        (MAX_MESSAGE - 1, 256),
        (MAX_MESSAGE, 256),
        (u32::MAX, 1 << 20),
    ] {
        let size = FragmentSize::K4;
        assert_eq!(fragments(len, size), count, "{len}");
        assert_eq!(fragment(len, count, size), None);
        assert_eq!(fragment(len, u32::MAX, size), None);
        assert!(fragment(len, count - 1, size).is_some_and(|f| f.last));
    }
}

#[test]
fn fragment_sizes() {
    for (bytes, size) in [
        (0, FragmentSize::K4),
        (1, FragmentSize::K4),
        (4096, FragmentSize::K4),
        (8191, FragmentSize::K4),
        (8192, FragmentSize::K8),
        (16383, FragmentSize::K8),
        (16384, FragmentSize::K16),
        (u32::MAX, FragmentSize::K16),
    ] {
        assert_eq!(FragmentSize::at_most(bytes), size, "{bytes}");
        if bytes <= 16384 {
            let above = FragmentSize::at_least(bytes);
            assert!(above.bytes() >= bytes && (above == size || above.bytes() > bytes));
        }
        let exact = (size.bytes() == bytes).then_some(size);
        assert_eq!(FragmentSize::exactly(bytes as usize), exact);
        let next = size.bytes().checked_sub(1).map(FragmentSize::at_most);
        assert_eq!(size.smaller(), next.filter(|next| *next < size));
    }
}

proptest! {
    #[test]
    fn round_trip(header in any_header()) {
        let bytes = emit(&header);
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
        let mut cleared = bytes;
        cleared[30] = 0;
        cleared[31] = 0;
        prop_assert_eq!(u16::from_be_bytes([bytes[30], bytes[31]]), checksum(&cleared));
        prop_assert_eq!(&bytes[26..30], &[0u8; 4]);
    }

    #[test]
    fn arbitrary_bytes(mut bytes in any::<[u8; 48]>(), fix in any::<bool>()) {
        if fix {
            bytes[30] = 0;
            bytes[31] = 0;
        }
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert!(header.len <= MAX_MESSAGE);
            let again = Header::parse(&emit(&header));
            prop_assert_eq!(again, Ok(header));
        }
    }

    #[test]
    fn fragments_cover_the_message(len in 0..=MAX_MESSAGE, most in 0..20000u32) {
        let size = FragmentSize::at_most(most);
        let mut at = 0;
        let mut index = 0;
        while let Some(f) = fragment(len, index, size) {
            prop_assert_eq!(f.offset, at);
            prop_assert!(f.last || f.len == size.bytes());
            prop_assert!(f.len > 0 || len == 0);
            at += f.len;
            index += 1;
            prop_assert_eq!(f.last, at == len);
        }
        prop_assert_eq!(at, len);
        prop_assert_eq!(index, fragments(len, size));
    }
}
