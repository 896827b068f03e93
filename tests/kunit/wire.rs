// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the header: bytes on the wire and limits.

use super::vectors::HEADER;
use crate::proto::wire::*;
use kernel::prelude::*;

#[kunit_tests(rds_wire)]
mod suite {
    use super::*;

    #[test]
    fn golden_bytes() {
        let (header, bytes) = HEADER;
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
