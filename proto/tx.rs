// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers and acknowledgements of the messages sent to one peer.
//!
//! A message gets its sequence number when it is queued and keeps it over reconnects. The peer
//! acknowledges cumulatively, in any frame. Messages may be cancelled before they are sent, so the
//! numbers on the wire can have gaps.
//!
//! Ownership: the messages stay in the caller's queues; this state has only numbers. Errors: an
//! acknowledgement of a message that was never sent ends the connection, see [`AckError`].

use super::wire::Flags;

/// Returns the first sequence number of a connection that is created at `real_ns`, counted from
/// 1970.
///
/// A peer that kept its state while this node restarted remembers only smaller numbers. C RDS drops
/// and acknowledges a retransmission whose number is before its expected one. The unit is 256 ns:
/// no connection sends faster, and the 16-digit columns of `rds-info` are wide enough until 2051.
pub(crate) fn first_sequence(real_ns: u64) -> u64 {
    (real_ns >> 8).max(1)
}

/// Limits on what is sent before the peer is asked to acknowledge at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    /// Messages between two requests.
    pub(crate) max_unacked_packets: u32,
    /// Payload bytes between two requests.
    pub(crate) max_unacked_bytes: u32,
}

impl Default for AckPolicy {
    /// C asks after eight messages. An acknowledgement is a frame like any other, so that costs a
    /// ninth of the throughput. [`Pressure`] covers senders that cannot wait for 32 messages.
    fn default() -> Self {
        AckPolicy {
            max_unacked_packets: 32,
            max_unacked_bytes: 16 << 20,
        }
    }
}

/// Messages between two requests of a sender with [`Pressure::High`].
const HIGH_PACKETS: u32 = 8;

/// Use of the sender's send buffer, by the messages up to this one and perhaps some behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Less than half.
    Low,
    /// Half or more. An early acknowledgement keeps the sender going.
    High,
    /// All. The sender can send no more until a message is acknowledged.
    Full,
}

/// Error: the peer acknowledges a message that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckError {
    /// The acknowledgement.
    pub(crate) ack: u64,
    /// The highest sequence sent so far.
    pub(crate) sent: u64,
}

/// Number of places for the last message of each local port. Ports that are equal modulo this
/// number share a place.
const PORT_BUCKETS: usize = 32;

/// Send side of the protocol towards one peer. It outlives the connections to that peer.
// Each message writes the fields up to `bytes_left`, and a place of `last`.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct SendState {
    next: u64,
    sent: u64,
    acked: u64,
    /// The last message that asked for an acknowledgement.
    last_ack_request: u64,
    packets_left: u32,
    bytes_left: u32,
    policy: AckPolicy,
    first: u64,
    /// Number of times that a message was sent again.
    retransmissions: u64,
    /// Value of `sent` when this connection began. An earlier one may have delivered these
    /// messages.
    sent_before: u64,
    /// A message on this connection, and the acknowledgement in its header. The peer gets both or
    /// none.
    piggyback: Option<(u64, u64)>,
    /// The last acknowledgement on this connection that the peer certainly has.
    ack_known_to_peer: u64,
    /// The last message from each local port, by place.
    last: [u64; PORT_BUCKETS],
}

impl SendState {
    /// Creates the state for a peer to which nothing was sent yet.
    pub(crate) const fn new(policy: AckPolicy) -> Self {
        SendState {
            policy,
            first: 1,
            next: 1,
            sent: 0,
            sent_before: 0,
            acked: 0,
            last_ack_request: 0,
            packets_left: policy.max_unacked_packets,
            bytes_left: policy.max_unacked_bytes,
            last: [0; PORT_BUCKETS],
            piggyback: None,
            ack_known_to_peer: 0,
            retransmissions: 0,
        }
    }

    /// Begins with `first`, which is at least 1, instead of 1: the peer may know all numbers before
    /// it. Must be called before a message is queued.
    pub(crate) fn begin_at(&mut self, first: u64) {
        let before = first.saturating_sub(1);
        (self.first, self.next) = (first, first);
        (self.sent, self.acked, self.last_ack_request) = (before, before, before);
        self.sent_before = before;
    }

    /// Returns the sequence number for a message from local port `sport` that is being queued.
    #[inline]
    pub(crate) fn assign(&mut self, sport: u16) -> u64 {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        if let Some(last) = self.last.get_mut(usize::from(sport) % PORT_BUCKETS) {
            *last = sequence;
        }
        sequence
    }

    /// Returns the last message from local port `sport`, or 0 if there was none. The message may be
    /// from another port that shares the place.
    pub(crate) fn last_of(&self, sport: u16) -> u64 {
        let last = self.last.get(usize::from(sport) % PORT_BUCKETS);
        last.copied().unwrap_or(0)
    }

    /// Returns the number that [`SendState::assign`] returns next.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns `true` if no message was ever sent, so that the peer knows no number of this node.
    pub(crate) fn is_unused(&self) -> bool {
        self.sent < self.first
    }

    /// Notes that message `sequence` with `len` payload bytes is sent for the first time. Returns
    /// the flags to send it with.
    #[inline]
    pub(crate) fn transmit(&mut self, sequence: u64, len: u32, pressure: Pressure) -> Flags {
        self.sent = self.sent.max(sequence);
        let budget = self
            .packets_left
            .checked_sub(1)
            .zip(self.bytes_left.checked_sub(len));
        let asks = match pressure {
            Pressure::Low => false,
            // One request at a time suffices, unless much was sent since.
            Pressure::High => {
                self.last_ack_request <= self.acked || self.since_ack_request() >= HIGH_PACKETS
            }
            Pressure::Full => true,
        };
        match budget {
            Some((packets, bytes)) if !asks => {
                self.packets_left = packets;
                self.bytes_left = bytes;
                Flags::NONE
            }
            _ => {
                self.refill();
                self.last_ack_request = sequence;
                Flags::ACK_REQUIRED
            }
        }
    }

    /// Notes that message `sequence` is sent, for the first time or again, and that its header
    /// acknowledges `ack`.
    #[inline]
    pub(crate) fn note_piggyback(&mut self, sequence: u64, ack: u64) {
        if ack != self.ack_known_to_peer && self.piggyback.is_none() {
            self.piggyback = Some((sequence, ack));
        }
    }

    /// Takes the last acknowledgement that the peer certainly got on the connection that ends; 0 if
    /// none. A peer that has not restarted retransmits no message that it covers.
    pub(crate) fn take_ack_known_to_peer(&mut self) -> u64 {
        self.piggyback = None;
        core::mem::take(&mut self.ack_known_to_peer)
    }

    /// Returns `true` if an earlier connection may have delivered the message to the peer.
    #[inline]
    pub(crate) fn was_sent(&self, sequence: u64) -> bool {
        sequence <= self.sent_before
    }

    /// Returns the flags of a message that is sent again after a reconnect.
    #[inline]
    pub(crate) fn retransmit(&mut self) -> Flags {
        self.refill();
        self.retransmissions = self.retransmissions.wrapping_add(1);
        Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED)
    }

    /// Returns the number of times that a message was sent again.
    pub(crate) const fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Handles the acknowledgement in a received header. Returns `Some(n)` if it newly acknowledges
    /// all messages up to `n`, and `None` for older acknowledgements and 0.
    ///
    /// # Errors
    ///
    /// [`AckError`] if the peer acknowledges a message that was never sent. The connection must be
    /// closed.
    #[inline]
    pub(crate) fn handle_ack(&mut self, ack: u64) -> Result<Option<u64>, AckError> {
        if ack <= self.acked {
            return Ok(None);
        }
        if ack > self.sent {
            return Err(AckError {
                ack,
                sent: self.sent,
            });
        }
        self.acked = ack;
        if let Some((_, ack_known_to_peer)) =
            self.piggyback.take_if(|(sequence, _)| *sequence <= ack)
        {
            self.ack_known_to_peer = ack_known_to_peer;
        }
        Ok(Some(ack))
    }

    /// Applies `policy` from the next message on. The peer was just asked for an acknowledgement.
    pub(crate) fn set_policy(&mut self, policy: AckPolicy) {
        self.policy = policy;
        self.refill();
    }

    /// Notes that a new connection to the same peer begins.
    pub(crate) fn reconnected(&mut self) {
        self.sent_before = self.sent;
        // Requests on the old connection are not answered.
        self.last_ack_request = 0;
        self.take_ack_known_to_peer();
        self.refill();
    }

    /// Returns the number of messages since one asked for an acknowledgement.
    fn since_ack_request(&self) -> u32 {
        self.policy
            .max_unacked_packets
            .saturating_sub(self.packets_left)
    }

    fn refill(&mut self) {
        self.packets_left = self.policy.max_unacked_packets;
        self.bytes_left = self.policy.max_unacked_bytes;
    }
}
