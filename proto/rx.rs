// SPDX-License-Identifier: GPL-2.0

//! Order, duplicates and reassembly of what one peer sends.
//!
//! The transport delivers frames in order and whole, or it breaks the connection. So the
//! fragments of a message follow each other; the one thing that may come between them is a pure
//! acknowledgement, because the C implementation sends those from its completion handler, also
//! while the rest of a long message waits for room in the send ring.
//!
//! How long fragments are is agreed on when a connection is made, but the side that asked for it may
//! get the first frames before the answer. So it is the first fragment of a message that says it: it
//! has all of the message, or as much as one of the sizes that there are.
//!
//! Replay rule: a message is a duplicate if it is marked as retransmitted and its sequence lies
//! before the expected one. Any other sequence is accepted and becomes the new position: it jumps
//! forward over messages that were cancelled, and back when the peer has restarted.
//! Sequences are compared modulo 2^64.
//!
//! That alone would drop messages of a restarted peer which it had to send twice. So the peer puts
//! a generation number on its congestion updates, the first frame on every connection: a new
//! number takes the position back to 1. The C implementation neither sends nor minds it.
//!
//! Of a peer without that number one thing is certain: it sends in order, the oldest message first on each connection.
//! So it has let go of all that was before the first message of an earlier connection, and of what it knows to be
//! acknowledged. If a connection begins with such a message, the peer has restarted. Any other one that was delivered
//! may have come again, or be the first of a new life: that cannot be told, and it is dropped.

use super::exthdr::{Extension, Extensions, CAP_PACKED};
use super::wire::{Flags, FragmentSize, Header};

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A header without a message.
    PureAck,
    /// A piece of the peer's congestion map.
    Congestion {
        /// Where the piece belongs, in bytes.
        offset: u32,
        /// Whether the map is complete with it.
        last: bool,
    },
    /// A piece of a message.
    Data {
        /// Where the piece belongs, in bytes.
        offset: u32,
        /// Bytes of the piece; 0 only in an empty message.
        len: u32,
        /// Whether a message starts with it.
        first: bool,
        /// Whether the message is complete with it.
        last: bool,
        /// The message was delivered before and has to be dropped, but acknowledged.
        duplicate: bool,
    },
}

/// The rule that a received frame breaks. The connection cannot go on after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RxError {
    /// The frame has another payload length than its place in the message demands.
    FragmentSize {
        /// Bytes demanded.
        expected: u32,
        /// Bytes in the frame.
        received: usize,
    },
    /// A message is incomplete, and the frame does not continue it.
    Interleaved {
        /// Sequence of the incomplete message.
        expected: u64,
        /// Sequence in the frame.
        received: u64,
    },
}

/// The fields that all fragments of a message share. Acknowledgement and credit may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    sequence: u64,
    len: u32,
    sport: u16,
    dport: u16,
    flags: Flags,
}

impl Identity {
    #[inline]
    fn of(header: &Header) -> Self {
        Identity {
            sequence: header.sequence,
            len: header.len,
            sport: header.sport,
            dport: header.dport,
            flags: header.flags,
        }
    }
}

/// A message of which more fragments are to come.
#[derive(Clone, Copy, Debug)]
struct Partial {
    identity: Identity,
    size: FragmentSize,
    received: u32,
    duplicate: bool,
}

/// What must not be forgotten of a peer that may send a message again which was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    next: u64,
    oldest: u64,
    generation: Option<u32>,
}

/// Whether a sequence is before another one, modulo 2^64.
#[inline]
fn is_before(sequence: u64, other: u64) -> bool {
    (sequence.wrapping_sub(other) as i64) < 0
}

/// Receive side of the protocol from one peer. It outlives the connections to that peer.
#[derive(Clone, Debug)]
pub(crate) struct RecvState {
    next: u64,
    /// The peer sends nothing again that is before this one, unless it has restarted.
    oldest: u64,
    ack: u64,
    ack_required: bool,
    generation: Option<u32>,
    tells_generation: bool,
    takes_packed: bool,
    partial: Option<Partial>,
}

impl RecvState {
    /// A peer from which nothing has arrived yet.
    pub(crate) const fn new() -> Self {
        RecvState {
            next: 1,
            oldest: 1,
            ack: 0,
            ack_required: false,
            generation: None,
            tells_generation: false,
            takes_packed: false,
            partial: None,
        }
    }

    /// A peer from which something has arrived before.
    pub(crate) const fn at(position: Position) -> Self {
        RecvState {
            next: position.next,
            oldest: position.oldest,
            generation: position.generation,
            ..Self::new()
        }
    }

    /// For [`RecvState::at`].
    pub(crate) fn position(&self) -> Position {
        Position {
            next: self.next,
            oldest: self.oldest,
            generation: self.generation,
        }
    }

    /// Takes a frame: its header, which [`Header::parse`] has accepted, and the length of what
    /// came behind it.
    ///
    /// # Errors
    ///
    /// [`RxError`] names the rule that the frame breaks. The state is unchanged; only
    /// [`RecvState::link_lost`] is of use then.
    #[inline]
    pub(crate) fn handle(&mut self, header: &Header, payload_len: usize) -> Result<Step, RxError> {
        if header.is_pure_ack(payload_len) {
            return Ok(Step::PureAck);
        }

        let identity = Identity::of(header);
        let (offset, size, duplicate) = match &self.partial {
            None => {
                let size = FragmentSize::exactly(payload_len).unwrap_or_default();
                (0, size, self.is_duplicate(header))
            }
            Some(partial) if partial.identity == identity => {
                (partial.received, partial.size, partial.duplicate)
            }
            Some(partial) => {
                return Err(RxError::Interleaved {
                    expected: partial.identity.sequence,
                    received: header.sequence,
                })
            }
        };

        let rest = header.len.saturating_sub(offset);
        let whole = offset == 0
            && rest <= FragmentSize::LARGEST.bytes()
            && usize::try_from(rest) == Ok(payload_len);
        let last = whole || rest <= size.bytes();
        let len = if last { rest } else { size.bytes() };
        if usize::try_from(len) != Ok(payload_len) {
            return Err(RxError::FragmentSize {
                expected: len,
                received: payload_len,
            });
        }
        self.partial = if last {
            None
        } else {
            Some(Partial {
                identity,
                size,
                received: offset.saturating_add(len),
                duplicate,
            })
        };

        if last && header.flags.contains(Flags::ACK_REQUIRED) {
            self.ack_required = true;
        }
        if header.flags.contains(Flags::CONG_BITMAP) {
            self.learn_peer(header);
            return Ok(Step::Congestion { offset, last });
        }
        if last {
            if self.ack == 0 {
                self.oldest = header.sequence;
            }
            self.ack = header.sequence;
            if !duplicate {
                self.next = header.sequence.wrapping_add(1);
            }
        }
        Ok(Step::Data {
            offset,
            len,
            first: offset == 0,
            last,
            duplicate,
        })
    }

    /// Learns what a congestion update tells of the peer.
    fn learn_peer(&mut self, header: &Header) {
        let mut generation = None;
        for extension in Extensions::new(&header.exthdr) {
            match extension {
                Extension::GenNum(number) => generation = Some(number),
                Extension::CapBits(bits) => self.takes_packed |= bits & CAP_PACKED != 0,
                _ => {}
            }
        }
        self.tells_generation |= generation.is_some();
        if generation.is_none() || generation == self.generation {
            return;
        }
        self.generation = generation;
        // Messages that were faster have set the position already.
        if self.ack == 0 {
            self.next = 1;
            self.oldest = 1;
        }
    }

    #[inline]
    fn is_duplicate(&self, header: &Header) -> bool {
        is_before(header.sequence, self.next)
            && header.flags.contains(Flags::RETRANSMITTED)
            && !self.shows_restart(header.sequence)
    }

    /// Whether a message that a peer sends again shows that it has restarted.
    fn shows_restart(&self, sequence: u64) -> bool {
        let first = self.ack == 0;
        first && !self.tells_generation && is_before(sequence, self.oldest)
    }

    /// The value for [`Header::ack`]: the sequence of the last message that is complete, or 0 as
    /// long as there was none on this connection.
    ///
    /// What earlier connections brought must not be acknowledged on this one: a peer that has
    /// restarted counts from 1 again and would take it for its own messages. If the peer has not
    /// restarted, it retransmits and learns it from that.
    #[inline]
    pub(crate) fn ack(&self) -> u64 {
        self.ack
    }

    /// Whether the peer has told a generation on this connection: it is an implementation like this
    /// one.
    #[inline]
    pub(crate) fn tells_generation(&self) -> bool {
        self.tells_generation
    }

    /// Whether no message has ever arrived: there is no position to keep.
    pub(crate) fn is_unused(&self) -> bool {
        self.next == 1 && self.ack == 0 && self.partial.is_none()
    }

    /// Whether the peer has told on this connection that it takes several messages in a frame.
    #[inline]
    pub(crate) fn takes_packed(&self) -> bool {
        self.takes_packed
    }

    /// The sequence expected next.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Whether the peer has asked for an acknowledgement since the last call.
    #[inline]
    pub(crate) fn take_ack_required(&mut self) -> bool {
        core::mem::take(&mut self.ack_required)
    }

    /// The peer has certainly heard that all up to `ack` has arrived; 0: of nothing. It has not restarted since.
    pub(crate) fn peer_heard(&mut self, ack: u64) {
        let oldest = ack.wrapping_add(1);
        if ack != 0 && is_before(self.oldest, oldest) {
            self.oldest = oldest;
        }
    }

    /// The connection is gone: forgets an incomplete message, which the peer will send again
    /// from its start, and what the peer wanted acknowledged. The position stays.
    pub(crate) fn link_lost(&mut self) {
        self.ack = 0;
        self.ack_required = false;
        self.tells_generation = false;
        self.takes_packed = false;
        self.partial = None;
    }
}
