// SPDX-License-Identifier: GPL-2.0
//! The messages between the two ends that are not test data: 32 bytes, numbers little-endian.
//!
//! ```text
//! sender     Hello   until there is a Welcome: a message to a port that nobody has bound yet is
//!                    dropped, so data must not be sent before
//! receiver   Welcome or the reason for which the two ends do not fit
//! sender     the data
//! receiver   Done    when all of it came
//! ```
//!
//! The probability that test data looks like one of these is that of a collision of 64 bits.

const LEN: usize = 32;
const MAGIC: [u8; 7] = *b"rdsvrfy";

/// The parameters on which both ends have to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Messages of each stream.
    pub(crate) count: u64,
    /// [`crate::sizes::Sizes::digest`]
    pub(crate) sizes: u64,
}

/// The sent or received messages of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) hash: u64,
}

impl Totals {
    /// Adds another stream's totals. The hashes are added too, as there is no order among streams.
    pub(crate) fn add(&mut self, other: Totals) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.hash = self.hash.wrapping_add(other.hash);
    }
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Hello(Plan),
    Welcome(Plan),
    Done(Totals),
}

impl Control {
    pub(crate) fn encode(self) -> [u8; LEN] {
        let (kind, numbers) = match self {
            Control::Hello(plan) => (1, [plan.seed, plan.count, plan.sizes]),
            Control::Welcome(plan) => (2, [plan.seed, plan.count, plan.sizes]),
            Control::Done(totals) => (3, [totals.messages, totals.bytes, totals.hash]),
        };
        let mut message = [0; LEN];
        let (head, body) = message.split_at_mut(8);
        head[..7].copy_from_slice(&MAGIC);
        head[7] = kind;
        for (field, number) in body.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        message
    }

    /// Decodes a message; `None` if `message` is no control message.
    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let message: &[u8; LEN] = message.try_into().ok()?;
        let (&[kind], fields) = message.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let mut numbers = [0; 3];
        for (number, field) in numbers.iter_mut().zip(fields.chunks_exact(8)) {
            *number = u64::from_le_bytes(field.try_into().ok()?);
        }
        let [a, b, c] = numbers;
        let plan = Plan {
            seed: a,
            count: b,
            sizes: c,
        };
        match kind {
            1 => Some(Control::Hello(plan)),
            2 => Some(Control::Welcome(plan)),
            3 => Some(Control::Done(Totals {
                messages: a,
                bytes: b,
                hash: c,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_reversible() {
        let plan = Plan {
            seed: 1,
            count: u64::MAX,
            sizes: 3,
        };
        let totals = Totals {
            messages: 4,
            bytes: 5,
            hash: 6,
        };
        for control in [
            Control::Hello(plan),
            Control::Welcome(plan),
            Control::Done(totals),
        ] {
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
    }

    #[test]
    fn anything_else_is_data() {
        let good = Control::Done(Totals::default()).encode();
        assert_eq!(Control::decode(&good[..LEN - 1]), None);
        assert_eq!(Control::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(Control::decode(&[]), None);
        for i in 0..8 {
            let mut bad = good;
            bad[i] ^= 0x80;
            assert_eq!(Control::decode(&bad), None, "byte {i}");
        }
    }
}
