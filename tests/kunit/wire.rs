// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the header: bytes on the wire and limits.

use crate::proto::wire::*;
use kernel::prelude::*;

#[kunit_tests(rds_wire)]
mod suite {
    use super::*;

    #[test]
    fn golden_bytes() {
        let header = Header {
            sequence: 0x0102_0304_0506_0708,
            ack: 0x1112_1314_1516_1718,
            len: 0x0003_2122,
            sport: 0x3132,
            dport: 0x4142,
            flags: Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED),
            credit: 0x51,
            exthdr: *b"\x05\0\x08\x06abcd\x08\0\0\0\0\0\0\0",
        };
        let bytes = *b"\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\
            \0\x03\x21\x22\x31\x32\x41\x42\x06\x51\0\0\0\0\x2b\xe0\
            \x05\0\x08\x06abcd\x08\0\0\0\0\0\0\0";
        assert_eq!(emit(&header), bytes);
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut bytes = emit(&message(100));
        bytes[20] ^= 0x10;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Checksum));
    }

    #[test]
    fn no_checksum() {
        let mut bytes = emit(&message(100));
        bytes[30] = 0;
        bytes[31] = 0;
        assert_eq!(Header::parse(&bytes), Ok(message(100)));
    }

    #[test]
    fn length_limits() {
        let parse = |header: Header| Header::parse(&emit(&header));
        assert!(parse(message(MAX_MESSAGE)).is_ok());
        let long = MAX_MESSAGE + 1;
        assert_eq!(parse(message(long)), Err(HeaderError::TooLong(long)));
        assert!(parse(map(CONG_MAP_BYTES)).is_ok());
        assert_eq!(parse(map(8191)), Err(HeaderError::CongLength(8191)));
    }

    #[test]
    fn fragment_boundaries() {
        assert_eq!(fragments(0, FragmentSize::K4), 1);
        assert_eq!(fragments(4096, FragmentSize::K4), 1);
        assert_eq!(fragments(4097, FragmentSize::K4), 2);
        assert_eq!(fragments(MAX_MESSAGE, FragmentSize::K4), 256);
        let last = Fragment {
            offset: 4096,
            len: 1,
            last: true,
        };
        assert_eq!(fragment(4097, 1, FragmentSize::K4), Some(last));
        assert_eq!(fragment(4097, 2, FragmentSize::K4), None);
    }

    fn message(len: u32) -> Header {
        Header {
            sequence: 1,
            len,
            sport: 1000,
            dport: 2000,
            ..Header::default()
        }
    }

    fn map(len: u32) -> Header {
        Header {
            len,
            flags: Flags::CONG_BITMAP,
            ..Header::default()
        }
    }

    fn emit(header: &Header) -> [u8; Header::LEN] {
        let mut bytes = [0xaa; Header::LEN];
        header.emit(&mut bytes);
        bytes
    }
}
