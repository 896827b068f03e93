// SPDX-License-Identifier: GPL-2.0

//! Structures of the wire and their bytes, for the host tests and the KUnit suites.

use crate::proto::{
    ib_private::{Addr, Private},
    wire::{Flags, Header},
};

/// A header, and its bytes.
#[rustfmt::skip]
pub(crate) const HEADER: (Header, [u8; Header::LEN]) = (
    Header {
        sequence: 0x0102_0304_0506_0708,
        ack: 0x1112_1314_1516_1718,
        len: 0x0003_2122,
        sport: 0x3132,
        dport: 0x4142,
        flags: Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED),
        credit: 0x51,
        exthdr: *b"\x05\0\x08\x06abcd\x08\0\0\0\0\0\0\0",
    },
    [
        1, 2, 3, 4, 5, 6, 7, 8,
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        0, 3, 0x21, 0x22, 0x31, 0x32, 0x41, 0x42,
        6, 0x51, 0, 0, 0, 0, 0x2b, 0xe0,
        5, 0, 8, 6, b'a', b'b', b'c', b'd',
        8, 0, 0, 0, 0, 0, 0, 0,
    ],
);

/// Private data of a request between IPv4 addresses, and its bytes.
#[rustfmt::skip]
pub(crate) const PRIVATE_V4: (Private, [u8; 32]) = (
    Private {
        saddr: Addr::from_v4([192, 168, 1, 2]),
        daddr: Addr::from_v4([10, 0, 0, 1]),
        major: 3,
        minor: 1,
        minor_mask: 3,
        tos: 5,
        frag_size: 0x4000,
        ack_seq: 0x0102_0304_0506_0708,
        credit: 0x1112_1314,
    },
    [
        192, 168, 1, 2, 10, 0, 0, 1,
        3, 1, 0, 3, 5, 0, 0x40, 0,
        1, 2, 3, 4, 5, 6, 7, 8,
        0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0,
    ],
);
