// SPDX-License-Identifier: GPL-2.0

//! Tests of `kapi/inline_bytes.rs`.

use super::inline_bytes::InlineBytes;
use crate::prelude::*;

const ROOM: usize = 8;

fn bytes() -> KBox<InlineBytes<ROOM>> {
    KBox::init(InlineBytes::init(), GFP_KERNEL).unwrap()
}

#[test]
fn they_begin_empty() {
    assert_eq!(bytes().as_slice(), []);
}

#[test]
fn the_last_contents_stay() {
    let mut bytes = bytes();
    for len in [0, 3, ROOM, 1] {
        let from = &[1, 2, 3, 4, 5, 6, 7, 8][..len];
        assert!(bytes.set(from));
        assert_eq!(bytes.as_slice(), from);
    }
    assert!(!bytes.set(&[9; ROOM + 1]));
    assert_eq!(bytes.as_slice(), [1]);
}

#[test]
fn they_have_as_many_as_were_filled() {
    let mut bytes = bytes();
    for len in [0, 5, ROOM] {
        // SAFETY: The closure fills all bytes but the last, and returns their number.
        let filled = unsafe {
            bytes.fill(len, |room| {
                let some = room.len().saturating_sub(1);
                room[..some].iter_mut().for_each(|byte| {
                    byte.write(7);
                });
                some
            })
        };
        let some = len.saturating_sub(1);
        assert_eq!(filled, Some(some));
        assert_eq!(bytes.as_slice(), &[7; ROOM][..some]);
    }
    // SAFETY: The closure is not called.
    assert_eq!(unsafe { bytes.fill(ROOM + 1, |_| unreachable!()) }, None);
}

#[test]
fn they_may_be_moved() {
    let mut bytes = KBox::into_inner(bytes());
    assert!(bytes.set(b"moved"));
    let bytes = [bytes];
    assert_eq!(bytes[0].as_slice(), b"moved");
}
