// SPDX-License-Identifier: GPL-2.0

//! The send queues of a connection, and the link that empties them.

use super::{
    info::QueueKind,
    transport::Link,
    tx_lock::SendSide,
    Connection, //
};
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
        idle::IdleTracker,
        info::RdmaPath,
        keepalive::Keepalive,
        packed,
        tx::SendState, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The queues of unsent and unacknowledged messages, and the state that decides what is sent next.
pub(crate) struct TxQueue {
    pub(crate) state: SendState,
    pub(crate) unsent: Fifo<Message>,
    pub(crate) sent: Fifo<Message>,
    /// Messages whose only purpose was an operation that is posted or was refused. They are dropped
    /// without the lock.
    pub(crate) finished: Fifo<Message>,
    /// The status of the operation that was posted last.
    pub(crate) last_operation: Option<Arc<OpStatus>>,
    /// Upper bound of the bytes that the unsent messages take in a packed frame. `u32::MAX` if one
    /// of them may not be packed.
    pub(super) backlog: u32,
    /// Bytes of the congestion map that still have to be sent.
    pub(crate) cong_left: u32,
    /// The map has changed since its transmission began, so it must be sent once more after that.
    pub(crate) cong_again: bool,
    /// The peer waits for an acknowledgement that no message has carried yet.
    pub(crate) ack_due: bool,
    /// Flow control state: the receives of the peer that may be used.
    pub(crate) credits: Credits,
}

impl TxQueue {
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

    /// Moves the first unsent message, whose last fragment is in a frame, to the sent queue.
    pub(crate) fn note_sent(&mut self) {
        if let Some(mut message) = self.unsent.pop_front() {
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

/// The send queue, and the link that empties it while the connection is up.
pub(super) struct Tx {
    pub(super) queue: TxQueue,
    pub(super) link: Option<Arc<dyn Link>>,
    /// The path of the last link, if nothing waited to be sent or acknowledged when it went down.
    /// Cleared by the next connection attempt.
    pub(super) idle_path: Option<RdmaPath>,
    /// Number of links that the connection has had.
    pub(super) times_up: u64,
    /// Value of `times_up` at the last search for operations lost with a queue pair.
    pub(super) times_searched: u64,
    /// State kept between idle checks.
    pub(super) idle_tracker: IdleTracker,
    /// State kept between keepalive checks.
    pub(super) keepalive: Keepalive,
    /// Sequence number of a keepalive that is in the queues.
    pub(super) keepalive_sequence: Option<u64>,
}

impl SendSide for Tx {
    fn push(&mut self, message: Item<Message>) {
        self.queue.push(message);
    }
}

impl Tx {
    pub(super) fn transmit(&mut self, connection: &Connection) {
        if let Some(link) = &self.link {
            link.transmit(connection, &mut self.queue);
        }
    }

    /// Returns `true` if messages wait for a link.
    pub(super) fn needs_link(&self) -> bool {
        self.link.is_none() && !self.queue.unsent.is_empty()
    }

    /// Returns `true` if messages wait to be sent or acknowledged. An unsent keepalive alone does
    /// not count.
    pub(super) fn is_pending(&self) -> bool {
        let TxQueue { unsent, sent, .. } = &self.queue;
        let is_keepalive = unsent.front().is_some_and(|first| first.is_keepalive);
        !sent.is_empty() || unsent.len() > usize::from(is_keepalive)
    }
}
