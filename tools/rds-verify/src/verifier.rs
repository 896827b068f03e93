// SPDX-License-Identifier: GPL-2.0
//! Verifies the messages of one stream, and identifies the defect of an unexpected one.
//!
//! A message carries no number: its number follows from the order. If that fails, the message is
//! compared with all others of the stream. Very short messages may then be confused with each
//! other, but a defect is never missed.

use std::collections::BTreeSet;
use std::fmt;

use crate::control::Totals;
use crate::sizes::Sizes;
use rds_content::{Hash, Key};

/// The defect, in message numbers that count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// `count` messages never came, `first` of them the first; `got` came in its place.
    Lost { first: u64, count: u64, got: u64 },
    /// `late` came, but only after `after` had come.
    Reordered { late: u64, after: u64 },
    /// `seq` came again where `expected` should have come.
    Duplicate { seq: u64, expected: u64 },
    /// `seq` ends after `got` bytes of `size`.
    Truncated { seq: u64, size: usize, got: usize },
    /// `seq` is followed by bytes that do not belong to it.
    Overlong { seq: u64, size: usize, got: usize },
    /// Some bytes of `seq` are wrong, first the one at `offset`.
    Corrupt {
        seq: u64,
        size: usize,
        offset: usize,
        wrong: usize,
    },
    /// Not a message of this stream.
    Foreign {
        expected: u64,
        size: usize,
        got: usize,
    },
    /// Not a message of this stream, which is complete.
    Surplus { got: usize },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Defect::Lost {
                first,
                count: 1,
                got,
            } => {
                write!(
                    f,
                    "loss: message {first} never came, {got} came in its place"
                )
            }
            Defect::Lost { first, count, got } => write!(
                f,
                "loss: {count} messages never came, the first of them {first}; {got} came in its \
                 place"
            ),
            Defect::Reordered { late, after } => {
                write!(f, "reordering: message {late} came after {after}")
            }
            Defect::Duplicate { seq, expected } => {
                write!(
                    f,
                    "duplication: message {seq} came again where {expected} was due"
                )
            }
            Defect::Truncated { seq, size, got } => {
                write!(f, "truncation: message {seq} has {got} of its {size} bytes")
            }
            Defect::Overlong { seq, size, got } => {
                write!(
                    f,
                    "foreign data: message {seq} of {size} bytes came with {got}"
                )
            }
            Defect::Corrupt {
                seq,
                size,
                offset,
                wrong,
            } => write!(
                f,
                "corruption: {wrong} of the {size} bytes of message {seq} are wrong, the first at \
                 offset {offset}"
            ),
            Defect::Foreign {
                expected,
                size,
                got,
            } => write!(
                f,
                "foreign data: {got} bytes that are no message of this stream came where message \
                 {expected}, of {size} bytes, was due"
            ),
            Defect::Surplus { got } => {
                write!(
                    f,
                    "foreign data: {got} bytes came when the stream was complete"
                )
            }
        }
    }
}

/// Messages that were skipped, and may still arrive late.
#[derive(Debug)]
struct Gap {
    first: u64,
    got: u64,
    missing: BTreeSet<u64>,
}

/// Verifies one stream.
#[derive(Debug)]
pub(crate) struct Verifier {
    key: Key,
    sizes: Sizes,
    count: u64,
    next: u64,
    bytes: u64,
    hash: Hash,
    gap: Option<Gap>,
}

impl Verifier {
    /// Creates a verifier that expects `count` messages.
    pub(crate) fn new(key: Key, sizes: Sizes, count: u64) -> Self {
        Verifier {
            key,
            sizes,
            count,
            next: 0,
            bytes: 0,
            hash: Hash::default(),
            gap: None,
        }
    }

    /// Returns `true` if all messages came.
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.count && self.gap.is_none()
    }

    /// Returns `true` if a message was skipped: lost or late, which only time can show.
    pub(crate) fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Returns the defect, if nothing more comes.
    pub(crate) fn loss(&self) -> Option<Defect> {
        self.gap.as_ref().map(|gap| Defect::Lost {
            first: gap.first,
            count: gap.missing.len() as u64,
            got: gap.got,
        })
    }

    /// Returns the totals of the messages so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            messages: self.next,
            bytes: self.bytes,
            hash: self.hash.value(),
        }
    }

    /// Checks the next message; `cut`: the kernel has truncated it.
    pub(crate) fn accept(&mut self, message: &[u8], cut: bool) -> Result<(), Defect> {
        let expected = self.next < self.count && self.size(self.next) == message.len() && !cut;
        if expected && self.key.verify(self.next, message, &mut self.hash) {
            self.next += 1;
            self.bytes += message.len() as u64;
            return Ok(());
        }
        self.examine(message, cut)
    }

    fn size(&self, seq: u64) -> usize {
        self.sizes.size(self.key, seq)
    }

    /// Identifies an unexpected message. An open gap was the first defect, so any other defect only
    /// ends the wait for the late message.
    fn examine(&mut self, message: &[u8], cut: bool) -> Result<(), Defect> {
        let found = if cut { None } else { self.identify(message) };
        let defect = match found {
            Some(seq) if seq >= self.next => {
                let gap = self.gap.get_or_insert_with(|| Gap {
                    first: self.next,
                    got: seq,
                    missing: BTreeSet::new(),
                });
                gap.missing.extend(self.next..seq);
                self.next = seq + 1;
                return Ok(());
            }
            Some(seq) => match &self.gap {
                Some(gap) if gap.missing.contains(&seq) => {
                    return Err(Defect::Reordered {
                        late: seq,
                        after: self.next - 1,
                    });
                }
                _ => Defect::Duplicate {
                    seq,
                    expected: self.next,
                },
            },
            None if self.next == self.count => Defect::Surplus { got: message.len() },
            None => self.compare_with_expected(message),
        };
        Err(self.loss().unwrap_or(defect))
    }

    /// Returns the number of the message with this content that is nearest to the expected one.
    fn identify(&self, message: &[u8]) -> Option<u64> {
        let mut ignored = Hash::default();
        let mut is = |seq: &u64| {
            self.size(*seq) == message.len() && self.key.verify(*seq, message, &mut ignored)
        };
        let mut before = (0..self.next).rev();
        let mut after = self.next..self.count;
        loop {
            let candidates = [before.next(), after.next()];
            if candidates == [None, None] {
                return None;
            }
            let found = candidates.into_iter().flatten().find(&mut is);
            if found.is_some() {
                return found;
            }
        }
    }

    fn compare_with_expected(&self, message: &[u8]) -> Defect {
        let (seq, size, got) = (self.next, self.size(self.next), message.len());
        let prefix = self.key.matching_prefix(seq, &message[..got.min(size)]);
        let matching = self.key.matching_bytes(seq, &message[..got.min(size)]);
        // One in 256 unrelated bytes matches.
        const RELATED: usize = 16;
        match got {
            _ if got < size && prefix == got => Defect::Truncated { seq, size, got },
            _ if got > size && prefix == size && size > 0 => Defect::Overlong { seq, size, got },
            _ if got == size && (size < 8 || matching > size / RELATED) => Defect::Corrupt {
                seq,
                size,
                offset: prefix,
                wrong: size - matching,
            },
            _ => Defect::Foreign {
                expected: seq,
                size,
                got,
            },
        }
    }
}

#[cfg(test)]
mod tests;
