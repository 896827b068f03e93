// SPDX-License-Identifier: GPL-2.0

//! Removes acknowledged messages from the send queues.
//!
//! Few messages are dropped while the frames that acknowledge them are processed. Many are left to
//! the sweep work of `cancel.rs`. Their buffers count, because each takes a lock of its pool.

use super::{
    path::Tx,
    tx_queue::TxQueue,
    Connection, //
};
use crate::{
    kapi::sync::{
        Fifo,
        ReadOnce,
        SpinLockBhGuard, //
    },
    msg::Message,
    proto::{
        tx::AckError,
        wire::PING_PORT, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Number of buffers at which no more acknowledged messages are removed in one hold of the lock.
const ACKED_BATCH: usize = 256;
/// Number of buffers at which one run of frames drops no more acknowledged messages with softirqs
/// off. A peer chooses when it acknowledges, so millions may be due at once. The limit is normally
/// more than a ring of packed frames carries.
const ACKED_AT_ONCE: usize = 16 * ACKED_BATCH;

impl TxQueue {
    /// Moves a batch of messages with sequences up to `ack` to `done`. Returns the number of their
    /// buffers, and `true` if there may be more.
    fn take_acked(&mut self, ack: u64, done: &mut Fifo<Message>) -> (usize, bool) {
        let mut buffers = 0usize;
        while buffers < ACKED_BATCH {
            let Some(message) = self.sent.pop_front_if(|it| it.sequence <= ack) else {
                return (buffers, false);
            };
            buffers = buffers.saturating_add(message.buffers());
            message.acknowledge();
            self.trace_acked(&message);
            // The peer does not count pings and keepalives either.
            if message.dport != PING_PORT {
                self.acked_bytes = self.acked_bytes.wrapping_add(u64::from(message.len));
            }
            done.push_back(message);
        }
        (buffers, true)
    }
}

impl Connection {
    /// Processes the acknowledgement of a received header.
    ///
    /// # Errors
    ///
    /// - [`AckError`] if the peer acknowledges a message that was never sent.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn handle_ack(self: &Arc<Self>, ack: u64) -> Result<(), AckError> {
        let mut tx = self.path.tx.lock();
        let Some(ack) = tx.queue.state.handle_ack(ack)? else {
            return Ok(());
        };
        self.path.acked.store(ack, Relaxed);
        tx.keepalive_sequence = tx.keepalive_sequence.filter(|sequence| *sequence > ack);
        let mut dropped = self.path.acked_in_run.read_once();
        if dropped >= ACKED_AT_ONCE {
            drop(tx);
            self.sweep_at_once();
            return Ok(());
        }
        let (mut buffers, mut more) = self.drop_acked_and_unlock(tx);
        dropped = dropped.saturating_add(buffers);
        while more && dropped < ACKED_AT_ONCE {
            (buffers, more) = self.drop_acked_and_unlock(self.path.tx.lock());
            dropped = dropped.saturating_add(buffers);
        }
        self.path.acked_in_run.store(dropped, Relaxed);
        if more {
            self.sweep_at_once();
        }
        Ok(())
    }

    /// Counts all messages up to `sequence`, which were sent, as received by the peer.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn note_taken(self: &Arc<Self>, sequence: u64) {
        // It was sent, so this is no error.
        let _ = self.handle_ack(sequence);
        self.path.acked_in_run.store(0, Relaxed);
    }

    /// Drops a batch of acknowledged messages. Returns `true` if there may be more.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn drop_acked(&self) -> bool {
        let (_, more) = self.drop_acked_and_unlock(self.path.tx.lock());
        more
    }

    /// Drops a batch of acknowledged messages. Returns the number of their buffers, and `true` if
    /// there may be more.
    #[inline]
    fn drop_acked_and_unlock(&self, mut tx: SpinLockBhGuard<'_, Tx>) -> (usize, bool) {
        let mut done = Fifo::new();
        let ack = self.path.acked.load(Relaxed);
        let taken = tx.queue.take_acked(ack, &mut done);
        drop(tx);
        self.node.stats.add(Counter::SendDropAcked, done.len());
        // This releases the senders' charges, so it happens without the lock.
        drop(done);
        taken
    }
}
