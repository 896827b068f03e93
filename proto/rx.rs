// SPDX-License-Identifier: GPL-2.0

//! Order, duplicates and reassembly of the messages from one peer.
//!
//! The transport delivers frames in order and whole, or breaks the connection. So the fragments of
//! a message follow each other. Only a pure acknowledgement may come between them. C RDS sends
//! those from its completion handler, even while the rest of a long message waits for send slots.
//!
//! The fragment size is negotiated when a connection is made, but the active side may get the first
//! frames before the reply. So the first fragment of a message determines the size: it has all of
//! the message, or exactly one of the possible sizes.
//!
//! Replay rule: a message is a duplicate if it is marked as retransmitted and its sequence number
//! is before the expected one. Any other number is accepted and becomes the new position. The
//! position jumps forward over cancelled messages, and back when the peer has restarted. Sequence
//! numbers are compared modulo 2^64.
//!
//! The replay rule alone would drop messages that a restarted peer had to send twice. Therefore
//! this module puts a generation number on its congestion updates, the first frame on every
//! connection: a new number resets the position to 1. C RDS neither sends nor evaluates it.
//!
//! A peer without that number sends in order, on each connection the oldest message first. So it
//! has discarded all messages before the first one of an earlier connection, and those that it
//! knows to be acknowledged. If a connection begins with one of these messages, the peer has
//! restarted. Any other message that was delivered before may be a retransmission, or the first one
//! after a restart. These cases cannot be distinguished, and the message is dropped.
//!
//! Ownership: the payload stays with the caller; this state has only numbers. Errors: a frame that
//! breaks a rule ends the connection, see [`RxError`].

use super::{
    exthdr::{
        Extension,
        Extensions,
        CAP_PACKED, //
    },
    wire::{
        Flags,
        FragmentSize,
        Header, //
    }, //
};
use core::num::NonZeroU32;

/// Result of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A header without a message.
    PureAck,
    /// A piece of the peer's congestion map.
    Congestion {
        /// Offset of the piece in the map, in bytes.
        offset: u32,
        /// The map is complete with this piece.
        last: bool,
    },
    /// A piece of a message.
    Data {
        /// Offset of the piece in the message, in bytes.
        offset: u32,
        /// Length of the piece in bytes; 0 only in an empty message.
        len: u32,
        /// The message starts with this piece.
        first: bool,
        /// The message is complete with this piece.
        last: bool,
        /// The message was delivered before. It must be dropped, but acknowledged.
        duplicate: bool,
    },
}

/// Rule for the lengths of the pieces of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    /// The first fragment determines the size of all but the last, as above.
    Fragments,
    /// Any piece is right that is not empty and not too long.
    Any,
}

/// Rule that a received frame breaks. The connection must be closed after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RxError {
    /// The payload length does not fit the place of the frame in its message.
    FragmentSize {
        /// Bytes required.
        expected: u32,
        /// Bytes in the frame.
        received: usize,
    },
    /// A message is incomplete, and the frame does not continue it.
    Interleaved {
        /// Sequence number of the incomplete message.
        expected: u64,
        /// Sequence number in the frame.
        received: u64,
    },
}

/// Fields that all fragments of a message share. Acknowledgement and credit may differ.
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

/// Message that is incomplete.
#[derive(Clone, Copy, Debug)]
struct Partial {
    identity: Identity,
    size: FragmentSize,
    received: u32,
    duplicate: bool,
}

/// State to keep for a peer that may retransmit a message which was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    next: u64,
    oldest: u64,
    generation: Option<u32>,
    peer_ran_rds_rust: bool,
    probe_generation: Option<NonZeroU32>,
}

impl Position {
    /// Adds the generation in the probes of the peer. [`RecvState`] does not know them.
    pub(crate) fn with_probe_generation(self, probe_generation: Option<NonZeroU32>) -> Self {
        Self {
            probe_generation,
            ..self
        }
    }

    /// Returns the generation in the probes of the peer. `None` if it is unknown.
    pub(crate) fn probe_generation(&self) -> Option<NonZeroU32> {
        self.probe_generation
    }
}

/// Returns `true` if a sequence number is before another one, modulo 2^64.
#[inline]
fn is_before(sequence: u64, other: u64) -> bool {
    (sequence.wrapping_sub(other) as i64) < 0
}

/// Receive side of the protocol from one peer. It outlives the connections to that peer.
#[derive(Clone, Debug)]
pub(crate) struct RecvState {
    next: u64,
    /// The peer retransmits no message before this one, unless it has restarted.
    oldest: u64,
    ack: u64,
    ack_required: bool,
    generation: Option<u32>,
    peer_sent_generation: bool,
    peer_ran_rds_rust: bool,
    takes_packed: bool,
    partial: Option<Partial>,
}

impl RecvState {
    /// Creates the state for a peer from which nothing has arrived yet.
    pub(crate) const fn new() -> Self {
        RecvState {
            next: 1,
            oldest: 1,
            ack: 0,
            ack_required: false,
            generation: None,
            peer_sent_generation: false,
            peer_ran_rds_rust: false,
            takes_packed: false,
            partial: None,
        }
    }

    /// Creates the state for a peer from which messages have arrived before.
    pub(crate) const fn at(position: Position) -> Self {
        RecvState {
            next: position.next,
            oldest: position.oldest,
            generation: position.generation,
            peer_ran_rds_rust: position.peer_ran_rds_rust,
            ..Self::new()
        }
    }

    /// Returns the position for [`RecvState::at`].
    pub(crate) fn position(&self) -> Position {
        Position {
            next: self.next,
            oldest: self.oldest,
            generation: self.generation,
            peer_ran_rds_rust: self.peer_ran_rds_rust,
            probe_generation: None,
        }
    }

    /// Handles a frame: its header, which [`Header::parse`] has accepted, and the length of its
    /// payload.
    ///
    /// # Errors
    ///
    /// [`RxError`] names the rule that the frame breaks. The state is unchanged; only
    /// [`RecvState::link_lost`] may be called then.
    #[inline]
    pub(crate) fn handle(&mut self, header: &Header, payload_len: usize) -> Result<Step, RxError> {
        self.handle_piece(header, payload_len, Pieces::Fragments)
    }

    /// Handles a frame of a stream, which this node has cut. So any payload is right that is not
    /// empty and not too long. See [`Self::handle`].
    ///
    /// # Errors
    ///
    /// - [`RxError`]
    #[inline]
    pub(crate) fn handle_of_stream(
        &mut self,
        header: &Header,
        payload_len: usize,
    ) -> Result<Step, RxError> {
        self.handle_piece(header, payload_len, Pieces::Any)
    }

    #[inline]
    fn handle_piece(
        &mut self,
        header: &Header,
        payload_len: usize,
        pieces: Pieces,
    ) -> Result<Step, RxError> {
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
        let len = match pieces {
            Pieces::Fragments if whole || rest <= size.bytes() => rest,
            Pieces::Fragments => size.bytes(),
            Pieces::Any => u32::try_from(payload_len)
                .unwrap_or(u32::MAX)
                .clamp(rest.min(1), rest),
        };
        let last = len == rest;
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

    /// Evaluates the extensions of a congestion update.
    fn learn_peer(&mut self, header: &Header) {
        let mut generation = None;
        for extension in Extensions::new(&header.exthdr) {
            match extension {
                Extension::GenNum(number) => generation = Some(number),
                Extension::CapBits(bits) => self.takes_packed |= bits & CAP_PACKED != 0,
                _ => {}
            }
        }
        self.peer_sent_generation |= generation.is_some();
        self.peer_ran_rds_rust = self.peer_sent_generation;
        if generation.is_none() || generation == self.generation {
            return;
        }
        self.generation = generation;
        self.note_restart();
    }

    /// Notes that the peer has restarted: its messages count from 1 again. Messages that arrived
    /// earlier on this connection have already set the position.
    pub(crate) fn note_restart(&mut self) {
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

    /// Returns `true` if a retransmitted message shows that the peer has restarted.
    fn shows_restart(&self, sequence: u64) -> bool {
        let first = self.ack == 0;
        first && !self.peer_sent_generation && is_before(sequence, self.oldest)
    }

    /// Returns the value for [`Header::ack`]: the sequence number of the last complete message, or
    /// 0 if there was none on this connection.
    ///
    /// Messages of earlier connections must not be acknowledged on this one. A restarted peer may
    /// count from 1 again, and would take the acknowledgement for its own messages. A peer that has
    /// not restarted retransmits, and gets the acknowledgement then.
    #[inline]
    pub(crate) fn ack(&self) -> u64 {
        self.ack
    }

    /// Returns `true` if the peer has sent a generation number on this connection: it runs this
    /// module.
    #[inline]
    pub(crate) fn peer_sent_generation(&self) -> bool {
        self.peer_sent_generation
    }

    /// Returns `true` if the peer ran this module on the last connection on which it sent a map.
    pub(crate) fn peer_ran_rds_rust(&self) -> bool {
        self.peer_ran_rds_rust
    }

    /// Returns `true` if no whole message has ever arrived, so that there is no position to keep.
    pub(crate) fn is_unused(&self) -> bool {
        self.next == 1 && self.ack == 0
    }

    /// Returns `true` if the peer has announced on this connection that it accepts packed frames.
    #[inline]
    pub(crate) fn takes_packed(&self) -> bool {
        self.takes_packed
    }

    /// Returns the sequence number expected next.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns `true` if the peer has asked for an acknowledgement since the last call.
    #[inline]
    pub(crate) fn take_ack_required(&mut self) -> bool {
        core::mem::take(&mut self.ack_required)
    }

    /// Notes that the peer certainly has the acknowledgement `ack`; 0 if it has none. It has not
    /// restarted since.
    pub(crate) fn note_ack_known_to_peer(&mut self, ack: u64) {
        let oldest = ack.wrapping_add(1);
        if ack != 0 && is_before(self.oldest, oldest) {
            self.oldest = oldest;
        }
    }

    /// Handles the end of the connection. Forgets an incomplete message, which the peer will send
    /// again from its start, and the peer's request for an acknowledgement. The position stays.
    pub(crate) fn link_lost(&mut self) {
        self.ack = 0;
        self.ack_required = false;
        self.peer_sent_generation = false;
        self.takes_packed = false;
        self.partial = None;
    }
}
