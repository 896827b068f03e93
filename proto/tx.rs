// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers and acknowledgements of the messages sent to one peer.
//!
//! A message gets its sequence number when it is queued and keeps it over reconnects. The peer
//! acknowledges cumulatively, in any frame. Messages may be cancelled before they are sent, so
//! the numbers on the wire can have gaps.

use super::wire::Flags;

/// The first sequence of a connection that is made at this time, in nanoseconds since 1970.
///
/// A peer that has stayed while this node restarted remembers smaller ones only. C RDS drops a
/// retransmission that is before what it remembers, and acknowledges it. The unit is 256 ns: no
/// connection sends faster, and the columns of `rds-info`, 16 digits, are wide enough until 2051.
pub(crate) fn first_sequence(real_ns: u64) -> u64 {
    (real_ns >> 8).max(1)
}

/// How much may go out before the peer is asked to acknowledge at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    /// Messages between two requests.
    pub(crate) max_unacked_packets: u32,
    /// Payload bytes between two requests.
    pub(crate) max_unacked_bytes: u32,
}

impl Default for AckPolicy {
    /// C asks after eight messages. An acknowledgement is a frame like any other, so that costs a
    /// ninth of the throughput; [`Pressure`] takes care of senders that cannot wait for so many.
    fn default() -> Self {
        AckPolicy {
            max_unacked_packets: 32,
            max_unacked_bytes: 16 << 20,
        }
    }
}

/// Messages between two requests of a sender with [`Pressure::High`].
const HIGH_PACKETS: u32 = 8;

/// How much of its send buffer the sender of a message uses, with the messages up to this one and
/// perhaps some behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Less than half.
    Low,
    /// Half or more: an early acknowledgement keeps the sender going.
    High,
    /// All: it can send no more until something is acknowledged.
    Full,
}

/// The peer acknowledges a message that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckError {
    /// The acknowledgement.
    pub(crate) ack: u64,
    /// The highest sequence sent so far.
    pub(crate) sent: u64,
}

/// Places for the last message of each port of ours. Ports that are the same modulo this number share one.
const PLACES: usize = 32;

/// Send side of the protocol towards one peer. It outlives the connections to that peer.
#[derive(Clone, Debug)]
pub(crate) struct SendState {
    policy: AckPolicy,
    first: u64,
    next: u64,
    sent: u64,
    /// What was `sent` when this connection began: an earlier one may have brought that.
    sent_before: u64,
    acked: u64,
    /// The last message that asked for an acknowledgement.
    asked: u64,
    packets_left: u32,
    bytes_left: u32,
    /// The last message from each port, by place.
    last: [u64; PLACES],
    /// A message on this connection, and the acknowledgement in its header: the peer has both or none.
    telling: Option<(u64, u64)>,
    /// The last acknowledgement on this connection that the peer is certain to have.
    heard: u64,
}

impl SendState {
    /// A peer to which nothing was sent yet.
    pub(crate) const fn new(policy: AckPolicy) -> Self {
        SendState {
            policy,
            first: 1,
            next: 1,
            sent: 0,
            sent_before: 0,
            acked: 0,
            asked: 0,
            packets_left: policy.max_unacked_packets,
            bytes_left: policy.max_unacked_bytes,
            last: [0; PLACES],
            telling: None,
            heard: 0,
        }
    }

    /// Begins with `first`, which is at least 1, instead of 1: the peer may know all numbers before it. Nothing was
    /// queued yet.
    pub(crate) fn begin_at(&mut self, first: u64) {
        let before = first.saturating_sub(1);
        (self.first, self.next) = (first, first);
        (self.sent, self.acked, self.asked) = (before, before, before);
        self.sent_before = before;
    }

    /// The sequence for a message from a port of ours that is being queued.
    #[inline]
    pub(crate) fn assign(&mut self, sport: u16) -> u64 {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        if let Some(last) = self.last.get_mut(usize::from(sport) % PLACES) {
            *last = sequence;
        }
        sequence
    }

    /// The last message from a port of ours; 0 if there was none. It may be that of another port, which shares the
    /// place.
    pub(crate) fn last_of(&self, sport: u16) -> u64 {
        let last = self.last.get(usize::from(sport) % PLACES);
        last.copied().unwrap_or(0)
    }

    /// The sequence that [`SendState::assign`] returns next.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Whether no message was ever sent: the peer knows no number of ours.
    pub(crate) fn is_unused(&self) -> bool {
        self.sent < self.first
    }

    /// Notes that message `sequence` with `len` payload bytes goes on the wire for the first
    /// time, and returns the flags to send it with.
    #[inline]
    pub(crate) fn transmit(&mut self, sequence: u64, len: u32, pressure: Pressure) -> Flags {
        self.sent = self.sent.max(sequence);
        let budget = self
            .packets_left
            .checked_sub(1)
            .zip(self.bytes_left.checked_sub(len));
        let asks = match pressure {
            Pressure::Low => false,
            // One request at a time is enough to get there, unless much was sent since.
            Pressure::High => self.asked <= self.acked || self.since_asked() >= HIGH_PACKETS,
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
                self.asked = sequence;
                Flags::ACK_REQUIRED
            }
        }
    }

    /// Notes that message `sequence` goes on the wire, for the first time or again, and that its header acknowledges
    /// `ack`.
    #[inline]
    pub(crate) fn tell(&mut self, sequence: u64, ack: u64) {
        if ack != self.heard && self.telling.is_none() {
            self.telling = Some((sequence, ack));
        }
    }

    /// The last acknowledgement that the peer is certain to have got on the connection that ends; 0: none. From a peer
    /// that has not restarted nothing comes again that it covers.
    pub(crate) fn take_heard(&mut self) -> u64 {
        self.telling = None;
        core::mem::take(&mut self.heard)
    }

    /// Whether an earlier connection may have brought a message to the peer.
    #[inline]
    pub(crate) fn was_sent(&self, sequence: u64) -> bool {
        sequence <= self.sent_before
    }

    /// The flags of a message that goes on the wire again after a reconnect.
    #[inline]
    pub(crate) fn retransmit(&mut self) -> Flags {
        self.refill();
        Flags::ACK_REQUIRED.with(Flags::RETRANSMITTED)
    }

    /// Takes the acknowledgement out of a received header. `Some(n)`: all messages up to `n` have
    /// arrived, and that is news. Older acknowledgements, and 0, are none.
    ///
    /// # Errors
    ///
    /// [`AckError`] if the peer acknowledges what was never sent; the connection has to go.
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
        if let Some((_, heard)) = self.telling.take_if(|(sequence, _)| *sequence <= ack) {
            self.heard = heard;
        }
        Ok(Some(ack))
    }

    /// From the next message on the peer is asked by this policy. It has just been asked.
    pub(crate) fn set_policy(&mut self, policy: AckPolicy) {
        self.policy = policy;
        self.refill();
    }

    /// A new connection to the same peer starts.
    pub(crate) fn reconnected(&mut self) {
        self.sent_before = self.sent;
        // Nothing that was asked on the old one is answered.
        self.asked = 0;
        self.take_heard();
        self.refill();
    }

    /// Messages since one asked for an acknowledgement.
    fn since_asked(&self) -> u32 {
        self.policy
            .max_unacked_packets
            .saturating_sub(self.packets_left)
    }

    fn refill(&mut self) {
        self.packets_left = self.policy.max_unacked_packets;
        self.bytes_left = self.policy.max_unacked_bytes;
    }
}
