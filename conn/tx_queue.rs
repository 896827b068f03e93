// SPDX-License-Identifier: GPL-2.0

//! The queues of messages to a peer, and the state that decides what is sent next.

use super::key::ConnKey;
use crate::{
    kapi::sync::{
        Fifo,
        Item, //
    },
    msg::{
        Message,
        OpStatus, //
    },
    proto::{
        credits::Credits,
        packed,
        tx::{
            AckPolicy,
            SendState, //
        }, //
    },
    trace::{
        self,
        TracedMsg, //
    }, //
};
use core::mem;
use kernel::sync::Arc;

/// Maximum number of messages that are visited each time their queue is locked.
pub(super) const BATCH: usize = 64;

/// The two queues of messages to the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Messages that wait to be sent.
    Unsent,
    /// Messages that the peer has not acknowledged.
    Sent,
}

/// The queues of unsent and unacknowledged messages, and the state that decides what is sent next.
// A message writes the fields up to the first half of `state`. With the lock they take three cache
// lines.
#[repr(C)]
pub(crate) struct TxQueue {
    /// Upper bound of the bytes that the unsent messages take in a packed frame. `u32::MAX` if one
    /// of them may not be packed.
    pub(super) backlog: u32,
    /// Bytes of the congestion map that still have to be sent.
    pub(crate) cong_left: u32,
    pub(crate) unsent: Fifo<Message>,
    pub(crate) sent: Fifo<Message>,
    /// Flow control state: the receives of the peer that may be used.
    pub(crate) credits: Credits,
    /// The map has changed since its transmission began, so it must be sent once more after that.
    pub(crate) cong_again: bool,
    /// The peer waits for an acknowledgement that no message has carried yet.
    pub(crate) ack_due: bool,
    /// Number of frames with payload that were sent, modulo 2^32.
    pub(crate) payload_frames: u32,
    pub(crate) state: SendState,
    /// Messages whose only purpose was an operation that is posted or was refused. They are dropped
    /// without the lock.
    pub(crate) finished: Fifo<Message>,
    /// The last transmission ended before all that it could do, because it had ended many
    /// operations. The others wait for the next one.
    pub(crate) is_cut_short: bool,
    /// The caller sends what a stream has staged, by `Link::push`. Set within one hold of the lock.
    pub(crate) caller_pushes: bool,
    /// Maximum number of operations that one transmission has ended.
    #[cfg(rds_kunit)]
    pub(crate) most_ended: u32,
    /// The status of the operation that was posted last.
    pub(crate) last_operation: Option<Arc<OpStatus>>,
    /// Payload bytes of the messages that the peer has acknowledged.
    pub(super) acked_bytes: u64,
    /// Names the connection in trace events.
    key: ConnKey,
}

const _: () = assert!(
    mem::offset_of!(TxQueue, state) <= 128,
    "three lines have room for the lock, the token and these"
);

impl TxQueue {
    pub(super) fn new(key: ConnKey, policy: AckPolicy) -> Self {
        Self {
            key,
            state: SendState::new(policy),
            unsent: Fifo::new(),
            sent: Fifo::new(),
            finished: Fifo::new(),
            is_cut_short: false,
            caller_pushes: false,
            #[cfg(rds_kunit)]
            most_ended: 0,
            last_operation: None,
            acked_bytes: 0,
            backlog: 0,
            cong_left: 0,
            cong_again: false,
            ack_due: false,
            payload_frames: 0,
            credits: Credits::off(),
        }
    }

    /// Returns the sequence of the last queued message of local port `sport`, or `None` if the port
    /// has none.
    ///
    /// It may be that of another port in the same bucket, see `SendState::last_of`. The queues are
    /// ordered by sequence, and their messages may be acknowledged already.
    pub(super) fn last_of(&self, sport: u16) -> Option<u64> {
        let last = self.state.last_of(sport);
        let begins_before =
            |queue: &Fifo<Message>| queue.front().is_some_and(|it| it.sequence <= last);
        (begins_before(&self.unsent) || begins_before(&self.sent)).then_some(last)
    }

    pub(super) fn queue_kind(&mut self, queue_kind: QueueKind) -> &mut Fifo<Message> {
        match queue_kind {
            QueueKind::Unsent => &mut self.unsent,
            QueueKind::Sent => &mut self.sent,
        }
    }

    /// Returns the form of one of the messages that tracepoints use. `None` if it is not sent.
    fn traced(&self, message: &Message) -> Option<TracedMsg> {
        if message.is_operation_only() {
            return None;
        }
        self.key
            .traced_msg(message.ports(), message.len, message.sequence)
    }

    /// Traces that the peer has acknowledged a message.
    #[inline]
    pub(super) fn trace_acked(&self, message: &Message) {
        trace::msg_acked(|| self.traced(message));
    }

    /// Moves the first unsent message, whose last fragment is in a frame, to the sent queue.
    pub(crate) fn note_sent(&mut self) {
        if let Some(mut message) = self.unsent.pop_front() {
            trace::msg_posted(|| self.traced(&message));
            // A retransmission starts with the first fragment.
            message.fragment = 0;
            self.sent.push_back(message);
        }
    }

    /// Gives a message its sequence number, and appends it to the unsent queue.
    #[inline]
    pub(super) fn push(&mut self, mut message: Item<Message>) {
        let sequence = self.state.assign(message.sport);
        message.queue(sequence);
        trace::msg_queued(|| self.traced(&message));
        if self.unsent.is_empty() {
            self.backlog = 0;
        }
        let bytes = if message.is_packable() {
            packed::bytes(message.len)
        } else {
            u32::MAX
        };
        self.backlog = self.backlog.saturating_add(bytes);
        self.unsent.push_back(message);
    }

    /// Returns `true` if only packable messages wait, and they do not fill a frame.
    pub(super) fn can_delay(&self) -> bool {
        self.cong_left == 0 && !self.unsent.is_empty() && self.backlog < packed::LONGEST_FRAME
    }

    /// Returns `true` if the first two unsent messages may share a frame.
    pub(super) fn can_pack(&self) -> bool {
        self.unsent.len() > 1 && self.unsent.iter().take(2).all(Message::is_packable)
    }
}
