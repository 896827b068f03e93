// SPDX-License-Identifier: GPL-2.0
//! Requests and acks: a header, and content that derives from the stream and the message's number.
//!
//! A stream consists of all messages that one task sends to another. They are counted, requests and
//! acks alike, so the number reveals lost and duplicate messages. The header has, in little-endian
//! order:
//!
//! | Bytes | What |
//! |---|---|
//! | 0 to 3 | `RDSt` |
//! | 4 | 1: a request, 2: an ack |
//! | 5 to 7 | 0 |
//! | 8 to 15 | the message's number in the stream, from 0 |
//! | 16 to 23 | the number of the request among the requests, or of that which is answered |
//! | 24 to 31 | a check over the stream (addresses and ports of both ends), and all of the above |

use std::fmt;

use rds_content::{mix, Hash, Key};

use crate::options::Options;

/// Bytes of a header, and so of the smallest message.
pub(crate) const HEADER: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"RDSt");

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Request,
    Ack,
}

impl Op {
    /// Returns the bytes of such a message.
    pub(crate) fn size(self, options: &Options) -> usize {
        let bytes = match self {
            Op::Request => options.req_bytes,
            Op::Ack => options.ack_bytes,
        };
        bytes as usize
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Request => "request",
            Op::Ack => "ack",
        })
    }
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) op: Op,
    /// Number of the message in its stream.
    pub(crate) seq: u64,
    /// Number of the request, or of the one that an ack answers.
    pub(crate) request: u64,
}

impl Header {
    fn words(self, key: Key) -> [u64; 4] {
        let op: u64 = match self.op {
            Op::Request => 1,
            Op::Ack => 2,
        };
        let first = u64::from(MAGIC) | op << 32;
        let check = mix(mix(key.draw(self.seq), first), self.request);
        [first, self.seq, self.request, check]
    }

    /// Decodes the header of `message`, if it has one that belongs to the stream of `key`.
    fn decode(key: Key, message: &[u8]) -> Option<Self> {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(message.get(..HEADER)?.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let op = match words[0] >> 32 {
            1 => Op::Request,
            2 => Op::Ack,
            _ => return None,
        };
        let header = Header {
            op,
            seq: words[1],
            request: words[2],
        };
        (header.words(key) == words).then_some(header)
    }

    /// Writes the message. Without `verify` there is no content behind the header.
    pub(crate) fn write(self, key: Key, message: &mut [u8], verify: bool) {
        let (header, content) = message.split_at_mut(HEADER);
        for (bytes, word) in header.chunks_exact_mut(8).zip(self.words(key)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        if verify {
            key.fill(self.seq, content);
        }
    }

    /// Verifies a message that should have the number `expected`, and returns its header. `cut`:
    /// the kernel has truncated it.
    pub(crate) fn read(
        key: Key,
        expected: u64,
        message: &[u8],
        cut: bool,
        options: &Options,
    ) -> Result<Self, Defect> {
        let len = message.len();
        let header = Header::decode(key, message).ok_or(Defect::Foreign { expected, len })?;
        let Header { op, seq, .. } = header;
        if seq > expected {
            return Err(Defect::Gap { expected, seq });
        }
        if seq < expected {
            return Err(Defect::Again { expected, seq });
        }
        let size = op.size(options);
        if len != size || cut {
            return Err(Defect::Size { op, seq, len, size });
        }
        let content = message.get(HEADER..).unwrap_or_default();
        if options.verify && !key.verify(seq, content, &mut Hash::default()) {
            return Err(Defect::Corrupt {
                op,
                seq,
                size,
                offset: HEADER + key.matching_prefix(seq, content),
                wrong: content.len() - key.matching_bytes(seq, content),
            });
        }
        Ok(header)
    }
}

/// The defect of a message, with numbers that count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// `seq` came where `expected` was due.
    Gap { expected: u64, seq: u64 },
    /// `seq` came again.
    Again { expected: u64, seq: u64 },
    /// No message of this stream, or the header is damaged.
    Foreign { expected: u64, len: usize },
    /// `len` bytes of `size`.
    Size {
        op: Op,
        seq: u64,
        len: usize,
        size: usize,
    },
    /// `wrong` bytes differ, first the one at `offset`.
    Corrupt {
        op: Op,
        seq: u64,
        size: usize,
        offset: usize,
        wrong: usize,
    },
    /// An ack for a request that was not sent, or was answered, or is out of order.
    WrongAck { request: u64, due: Option<u64> },
    /// A request with a wrong number, or one too many.
    WrongRequest { request: u64, due: u64 },
    /// It came after both ends had reported that they had all messages.
    Surplus { len: usize },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Defect::Gap { expected, seq } => write!(
                f,
                "loss or reordering: message {seq} came where message {expected} was due"
            ),
            Defect::Again { expected, seq } => write!(
                f,
                "duplication: message {seq} came again where message {expected} was due"
            ),
            Defect::Foreign { expected, len } => write!(
                f,
                "foreign data: {len} bytes that are no message of this stream, or have a damaged header, \
                 came where message {expected} was due"
            ),
            Defect::Size { op, seq, len, size } if len < size => {
                write!(f, "truncation: message {seq}, {op}, has {len} of its {size} bytes")
            }
            Defect::Size { op, seq, size, .. } => {
                write!(f, "foreign data: message {seq}, {op}, has more than its {size} bytes")
            }
            Defect::Corrupt {
                op,
                seq,
                size,
                offset,
                wrong,
            } => write!(
                f,
                "corruption: {wrong} of the {size} bytes of message {seq}, {op}, are wrong, the first at \
                 offset {offset}"
            ),
            Defect::WrongAck { request, due } => match due {
                Some(due) => write!(f, "an ack of request {request} arrived, but that of request {due} was expected"),
                None => write!(f, "an ack of request {request} arrived, but no ack was expected"),
            },
            Defect::WrongRequest { request, due } => write!(
                f,
                "request {request} arrived, but request {due} was expected, or should have waited for an ack"
            ),
            Defect::Surplus { len } => write!(
                f,
                "duplication or foreign data: {len} bytes came when every message had come"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::example;

    fn key() -> Key {
        Key::new(
            0,
            ([10, 0, 0, 1], 4001).into(),
            ([10, 0, 0, 2], 4001).into(),
        )
    }

    fn message(op: Op, seq: u64, request: u64) -> Vec<u8> {
        let mut message = vec![0; op.size(&example())];
        Header { op, seq, request }.write(key(), &mut message, true);
        message
    }

    fn read(expected: u64, message: &[u8]) -> Result<Header, Defect> {
        Header::read(key(), expected, message, false, &example())
    }

    #[test]
    fn written_bytes_are_read() {
        for (op, seq, request) in [(Op::Request, 0, 0), (Op::Ack, u64::MAX, 5)] {
            let header = Header { op, seq, request };
            assert_eq!(read(seq, &message(op, seq, request)), Ok(header));
        }
    }

    #[test]
    fn numbers_distinguish_loss_from_duplication() {
        let message = message(Op::Ack, 7, 3);
        assert_eq!(
            read(5, &message),
            Err(Defect::Gap {
                expected: 5,
                seq: 7
            })
        );
        assert_eq!(
            read(9, &message),
            Err(Defect::Again {
                expected: 9,
                seq: 7
            })
        );
    }

    #[test]
    fn every_damaged_bit_is_seen() {
        let good = message(Op::Ack, 7, 3);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let wanted = if bit / 8 < HEADER {
                let len = good.len();
                Defect::Foreign { expected: 7, len }
            } else {
                let (op, seq, size) = (Op::Ack, 7, good.len());
                let (offset, wrong) = (bit / 8, 1);
                Defect::Corrupt {
                    op,
                    seq,
                    size,
                    offset,
                    wrong,
                }
            };
            assert_eq!(read(7, &bad), Err(wanted), "bit {bit}");
        }
    }

    #[test]
    fn sizes_are_exact() {
        let mut long = message(Op::Request, 0, 0);
        let cut = Header::read(key(), 0, &long, true, &example());
        assert!(matches!(cut, Err(Defect::Size { .. })));
        let short = read(0, &long[..1000]).unwrap_err();
        assert!(short.to_string().starts_with("truncation"), "{short}");
        long.push(0);
        let long = read(0, &long).unwrap_err();
        assert!(long.to_string().contains("more than"), "{long}");
    }

    #[test]
    fn a_message_of_another_stream_is_foreign() {
        let other = Key::new(
            0,
            ([10, 0, 0, 1], 4002).into(),
            ([10, 0, 0, 2], 4001).into(),
        );
        let found = Header::read(other, 7, &message(Op::Ack, 7, 3), false, &example());
        assert!(matches!(found, Err(Defect::Foreign { .. })));
    }

    #[test]
    fn without_verification_the_header_counts() {
        let options = Options {
            verify: false,
            ..example()
        };
        let mut message = message(Op::Ack, 7, 3);
        message[40] ^= 1;
        assert!(Header::read(key(), 7, &message, false, &options).is_ok());
        message[4] ^= 1;
        assert!(Header::read(key(), 7, &message, false, &options).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_message(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            seq: u64,
        ) {
            prop_assert!(read(seq, &bytes).is_err());
        }
    }
}
