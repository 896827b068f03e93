// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of frames with several messages.

use crate::proto::{
    packed::*,
    wire::*, //
};
use kernel::prelude::*;

fn header(sequence: u64, len: u32) -> Header {
    Header {
        sequence,
        len,
        ..Header::default()
    }
}

#[kunit_tests(rds_packed)]
mod suite {
    use super::*;

    #[test]
    fn packed_messages_are_unpacked() {
        let mut frame = [0xaa; 200];
        let mut packer = Packer::new(&mut frame);
        assert!(packer.push(&header(1, 3), b"abc"));
        assert!(packer.push(&header(2, 0), b""));
        assert!(packer.push(&header(3, 8), b"12345678"));
        assert_eq!(packer.len(), 160);
        assert!(!packer.has_room(0));

        let mut found = Unpacker::new(&frame[..160]);
        assert_eq!(found.next(), Some(Ok((header(1, 3), &b"abc"[..]))));
        assert_eq!(found.next(), Some(Ok((header(2, 0), &b""[..]))));
        assert_eq!(found.next(), Some(Ok((header(3, 8), &b"12345678"[..]))));
        assert_eq!(found.next(), None);
    }

    #[test]
    fn a_frame_that_is_cut_off() {
        let mut frame = [0; 120];
        let mut packer = Packer::new(&mut frame);
        assert!(packer.push(&header(1, 8), b"12345678"));
        assert!(packer.push(&header(2, 8), b"12345678"));
        let len = packer.len() as usize;

        let mut found = Unpacker::new(&frame[..len - 1]);
        assert!(matches!(found.next(), Some(Ok(_))));
        assert_eq!(found.next(), Some(Err(SplitError::Cut(8, 7))));
        assert_eq!(found.next(), None);
        let mut found = Unpacker::new(&frame[..57]);
        assert!(matches!(found.next(), Some(Ok(_))));
        assert_eq!(found.next(), Some(Err(SplitError::Short(1))));
        assert_eq!(found.next(), None);
    }
}
