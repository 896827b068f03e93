// SPDX-License-Identifier: GPL-2.0

//! The end of messages that the peer has acknowledged: in the run of frames that tells, or by the
//! sweep of `cancel.rs` if they are many.

use super::{
    connection::{Tx, TxQueue},
    Connection, Counter,
};
use crate::kapi::sync::{Fifo, Peek, SpinLockBhGuard};
use crate::msg::Message;
use crate::proto::tx::AckError;
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// Acknowledged messages that are taken out with the lock held.
const ACKED_BATCH: usize = 256;
/// Those that a run of frames ends with softirqs off: a peer that acknowledges when it likes may
/// have let millions come together. More than a ring of packed frames carries as a rule.
const ACKED_AT_ONCE: usize = 16 * ACKED_BATCH;

impl TxQueue {
    /// Takes up to `most` messages out that the peer has acknowledged, up to `ack`. Returns whether
    /// there may be more.
    fn take_acked(&mut self, ack: u64, most: usize, done: &mut Fifo<Message>) -> bool {
        for _ in 0..most {
            let Some(message) = self.sent.pop_front_if(|it| it.sequence <= ack) else {
                return false;
            };
            message.acknowledge();
            done.push_back(message);
        }
        true
    }
}

impl Connection {
    /// Takes the acknowledgement of a received header. Any context but a hard interrupt.
    ///
    /// # Errors
    ///
    /// [`AckError`] if the peer never got what it acknowledges.
    pub(super) fn handle_ack(self: &Arc<Self>, ack: u64) -> Result<(), AckError> {
        let mut tx = self.tx.lock();
        let Some(ack) = tx.queue.state.handle_ack(ack)? else {
            return Ok(());
        };
        self.acked.store(ack, Relaxed);
        tx.asking = tx.asking.filter(|question| *question > ack);
        let mut dropped = self.acked_in_run.peek();
        if dropped >= ACKED_AT_ONCE {
            drop(tx);
            self.sweep_at_once();
            return Ok(());
        }
        let (mut count, mut more) = self.drop_acked_and_unlock(tx);
        dropped = dropped.saturating_add(count);
        while more && dropped < ACKED_AT_ONCE {
            (count, more) = self.drop_acked_and_unlock(self.tx.lock());
            dropped = dropped.saturating_add(count);
        }
        self.acked_in_run.store(dropped, Relaxed);
        if more {
            self.sweep_at_once();
        }
        Ok(())
    }

    /// Drops some of the messages that the peer has acknowledged, and returns whether there may be
    /// more. Any context but a hard interrupt.
    pub(super) fn drop_acked(&self) -> bool {
        let (_, more) = self.drop_acked_and_unlock(self.tx.lock());
        more
    }

    /// Drops some, and returns how many, and whether there may be more.
    #[inline]
    fn drop_acked_and_unlock(&self, mut tx: SpinLockBhGuard<'_, Tx>) -> (usize, bool) {
        let mut done = Fifo::new();
        let ack = self.acked.load(Relaxed);
        let more = tx.queue.take_acked(ack, ACKED_BATCH, &mut done);
        drop(tx);
        let count = done.len();
        self.node.stats.add(Counter::SendDropAcked, count);
        // The senders get their room back here, without the lock.
        drop(done);
        (count, more)
    }
}
