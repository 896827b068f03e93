// SPDX-License-Identifier: GPL-2.0

//! Queues what a connection sends, and has it posted.
//!
//! A queued message belongs to the connection until the peer has acknowledged it. If the link has
//! no room, or there is none, it waits in the queue.

use super::{connection::Tx, Connection};
use crate::kapi::sync::{Fifo, Item, ReadOnce, SpinLockBhGuard};
use crate::msg::Message;
use crate::proto::wire::{CONG_MAP_BYTES, PING_PORT, PROBE_PORT};
use crate::stats::Counter;
use kernel::sync::{
    atomic::{Full, Relaxed},
    Arc,
};

impl Connection {
    /// Queues a message and posts as much as possible.
    ///
    /// # Errors
    ///
    /// Returns the message if the connection has ended. Another connection for the same addresses
    /// may exist then.
    pub(crate) fn send(self: &Arc<Self>, message: Item<Message>) -> Result<(), Item<Message>> {
        let tx = self.tx.lock();
        if self.has_ended() {
            return Err(message);
        }
        let up = tx.link.is_some();
        self.queue_and_unlock(tx, message);
        if !up {
            self.want();
        }
        Ok(())
    }

    /// Queues a message and posts as much as possible.
    #[inline]
    pub(super) fn queue_and_unlock(
        &self,
        mut tx: SpinLockBhGuard<'_, Tx>,
        mut message: Item<Message>,
    ) {
        let sequence = tx.queue.state.assign(message.sport);
        message.queue(sequence);
        tx.queue.push(message);
        self.transmit_and_unlock(tx);
        self.node.stats.inc(Counter::SendQueued);
    }

    /// Sends `count` pings without a reader for the answers, if the connection is up and idle.
    ///
    /// C RDS gets none: it takes a ping from this port for the handshake of RDS over TCP, and
    /// warns.
    pub(crate) fn probe(self: &Arc<Self>, count: u32) {
        if !self.rx.lock().peer_is_rds_rust() {
            return;
        }
        for _ in 0..count {
            let tx = self.tx.lock();
            let idle = tx.link.is_some() && tx.queue.unsent.is_empty();
            drop(tx);
            if !idle {
                return;
            }
            let Ok(ping) = Message::empty(self.pools(), PROBE_PORT, PING_PORT) else {
                return;
            };
            if self.send(ping).is_err() {
                return;
            }
            self.node.stats.inc(Counter::SendProbe);
        }
    }

    /// Posts after the link has room again or there is something new to post.
    pub(crate) fn resume(&self) {
        self.transmit_and_unlock(self.tx.lock());
    }

    /// Posts as much as possible, and drops finished messages without the lock.
    pub(super) fn transmit_and_unlock(&self, mut tx: SpinLockBhGuard<'_, Tx>) {
        tx.transmit(self);
        Self::unlock(tx);
    }

    /// Releases the lock, then drops finished messages.
    fn unlock(mut tx: SpinLockBhGuard<'_, Tx>) {
        if tx.queue.finished.is_empty() {
            return;
        }
        let mut finished = Fifo::new();
        finished.append(&mut tx.queue.finished);
        drop(tx);
        drop(finished);
    }

    /// Sends an acknowledgement if the peer has asked for one since the last call. The transport
    /// calls it after a run of frames.
    pub(crate) fn flush_ack(&self) {
        if self.acked_in_run.read_once() != 0 {
            self.acked_in_run.store(0, Relaxed);
        }
        if !self.ack_wanted.read_once() || !self.ack_wanted.xchg(false, Full) {
            return;
        }
        let mut tx = self.tx.lock();
        tx.queue.ack_due = true;
        tx.transmit(self);
        let delayed = tx.queue.ack_due;
        Self::unlock(tx);
        if delayed {
            self.node.stats.inc(Counter::IbAckSendDelayed);
        }
    }

    /// Sends a header without a message if the connection is up.
    pub(crate) fn send_header(&self) {
        let mut tx = self.tx.lock();
        if tx.link.is_some() {
            tx.queue.ack_due = true;
            self.transmit_and_unlock(tx);
        }
    }

    /// Queues this node's congestion map for sending. Returns `false` if nothing was queued: an
    /// unsent map will carry the same content, or the connection is down and sends a map when it
    /// comes up.
    pub(crate) fn send_congestion_map(&self) -> bool {
        let mut tx = self.tx.lock();
        if tx.link.is_none() {
            return false;
        }
        let queue = &mut tx.queue;
        let queued = match queue.cong_left {
            0 => {
                queue.cong_left = CONG_MAP_BYTES;
                true
            }
            CONG_MAP_BYTES => false,
            // The map is partially sent.
            _ => !core::mem::replace(&mut queue.cong_again, true),
        };
        self.transmit_and_unlock(tx);
        queued
    }
}
