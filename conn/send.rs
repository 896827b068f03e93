// SPDX-License-Identifier: GPL-2.0

//! Queues what a connection sends, and has it posted.
//!
//! A queued message belongs to the connection until the peer has acknowledged it. If the link has
//! no room, or there is none, it waits in the queue.
//!
//! One context at a time builds and posts frames, with the send side locked. Another one that wants
//! to send meanwhile leaves its message to that context, see [`TxLock`](super::tx_lock::TxLock).

use super::{
    path::Tx,
    send_token::Holding,
    Connection, //
};
use crate::{
    kapi::sync::{
        Fifo,
        Item,
        ReadOnce,
        SpinLockBhGuard, //
    },
    msg::Message,
    proto::wire::{
        CONG_MAP_BYTES,
        PING_PORT,
        PROBE_PORT, //
    },
    stats::Counter, //
};
use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};

/// Number of further transmissions for others in one hold of the lock.
const ROUNDS: usize = 4;

/// Reason why a message was not queued.
pub(super) enum NotQueued {
    /// The path has ended.
    Ended(Item<Message>),
    /// The message belongs to another path.
    Elsewhere(Item<Message>),
}

impl NotQueued {
    pub(super) fn into_message(self) -> Item<Message> {
        match self {
            Self::Ended(message) | Self::Elsewhere(message) => message,
        }
    }
}

impl Tx {
    fn transmit(&mut self, connection: &Connection) {
        if let Some(link) = &self.link {
            link.transmit(connection, &mut self.queue);
        }
    }
}

impl Connection {
    /// Queues a message on this path, and posts as much as possible.
    ///
    /// # Errors
    ///
    /// Returns the message if the connection has ended. Another connection for the same addresses
    /// may exist then.
    #[inline]
    pub(crate) fn send(self: &Arc<Self>, message: Item<Message>) -> Result<(), Item<Message>> {
        self.try_send(message).map_err(NotQueued::into_message)
    }

    /// Queues a message on this path if it belongs there, and posts as much as possible.
    ///
    /// # Errors
    ///
    /// Returns the message if the connection has ended, or if its port has another path.
    #[inline]
    pub(super) fn try_send(self: &Arc<Self>, message: Item<Message>) -> Result<(), NotQueued> {
        if message.dport == PING_PORT {
            self.send_map_before_ping();
        }
        let Some(tx) = self.path.tx.try_lock() else {
            return self.leave(message);
        };
        let message = self.check_path(message)?;
        let up = tx.link.is_some();
        self.queue_and_unlock(tx, message);
        if !up {
            self.want();
        }
        Ok(())
    }

    /// Queues a message of a program as [`Self::try_send`] does. A stream to which the peer owes no
    /// acknowledgement sends it before this returns. Otherwise its work sends several at a time.
    ///
    /// # Errors
    ///
    /// Those of [`Self::try_send`].
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    #[inline]
    pub(super) fn try_send_of_program(
        self: &Arc<Self>,
        message: Item<Message>,
    ) -> Result<(), NotQueued> {
        if !self.is_stream() || message.dport == PING_PORT {
            return self.try_send(message);
        }
        let Some(mut tx) = self.path.tx.try_lock() else {
            return self.leave(message);
        };
        let message = self.check_path(message)?;
        let Some(link) = tx.link.clone() else {
            self.queue_and_unlock(tx, message);
            self.want();
            return Ok(());
        };
        let is_idle = tx.queue.sent.is_empty() && tx.queue.unsent.is_empty();
        tx.queue.caller_pushes = is_idle;
        self.queue_and_unlock(tx, message);
        if is_idle && !link.push() {
            // The teardown of the link takes this lock, so nothing is queued after it.
            if let Some(link) = &self.path.tx.lock().link {
                link.push_later();
            }
        }
        Ok(())
    }

    /// Checks that a message can be queued on this path, whose send side is locked.
    ///
    /// # Errors
    ///
    /// Those of [`Self::try_send`].
    #[inline]
    fn check_path(&self, message: Item<Message>) -> Result<Item<Message>, NotQueued> {
        if self.has_ended() {
            return Err(NotQueued::Ended(message));
        }
        if !self.is_path_of(&message) {
            return Err(NotQueued::Elsewhere(message));
        }
        Ok(message)
    }

    /// Queues a message and posts as much as possible.
    #[inline]
    pub(super) fn queue_and_unlock(
        self: &Arc<Self>,
        mut tx: SpinLockBhGuard<'_, Tx>,
        message: Item<Message>,
    ) {
        tx.queue.push(message);
        self.transmit_and_unlock(tx);
        self.node.stats.inc(Counter::SendQueued);
    }

    /// Queues a message while another context has locked the send side.
    ///
    /// # Errors
    ///
    /// Those of [`Self::try_send`].
    #[cold]
    fn leave(self: &Arc<Self>, message: Item<Message>) -> Result<(), NotQueued> {
        let takes = |message: &Message| !self.has_ended() && self.is_path_of(message);
        if let Err(message) = self.path.tx.leave(message, takes) {
            return Err(match self.has_ended() {
                true => NotQueued::Ended(message),
                false => NotQueued::Elsewhere(message),
            });
        }
        self.node.stats.inc(Counter::SendQueued);
        if let Some((tx, token)) = self.path.tx.ask_and_lock() {
            self.transmit_for_all(tx, token);
        }
        Ok(())
    }

    /// Sends `count` pings without a reader for the answers, if the connection is up and idle.
    ///
    /// C RDS gets none: it takes a ping from this port for the handshake of RDS over TCP, and
    /// warns.
    pub(crate) fn probe(self: &Arc<Self>, count: u32) {
        if !self.path.rx.lock().peer_is_rds_rust() {
            return;
        }
        for _ in 0..count {
            let tx = self.path.tx.lock();
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
    pub(crate) fn resume(self: &Arc<Self>) {
        if let Some(tx) = self.path.tx.try_lock() {
            return self.transmit_and_unlock(tx);
        }
        if let Some((tx, token)) = self.path.tx.ask_and_lock() {
            self.transmit_for_all(tx, token);
        }
    }

    /// Posts as much as possible, and drops finished messages without the lock.
    #[inline]
    pub(super) fn transmit_and_unlock(self: &Arc<Self>, mut tx: SpinLockBhGuard<'_, Tx>) {
        // The token is requested first, so that other senders may leave their messages to this
        // context.
        let token = self.path.tx.ask();
        tx.transmit(self);
        self.finish_and_unlock(tx, token);
    }

    /// Posts what other contexts have left, as the holder of the token.
    pub(super) fn transmit_for_all(
        self: &Arc<Self>,
        mut tx: SpinLockBhGuard<'_, Tx>,
        token: Holding,
    ) {
        tx.transmit(self);
        self.want_link(&tx);
        self.finish_and_unlock(tx, Some(token));
    }

    /// Gives the token back if the caller holds it, and releases the lock. Transmits again before
    /// that if other contexts have asked for it.
    #[inline]
    fn finish_and_unlock(
        self: &Arc<Self>,
        mut tx: SpinLockBhGuard<'_, Tx>,
        token: Option<Holding>,
    ) {
        let again = token.and_then(|token| self.path.tx.give_back(&mut tx, token));
        match again {
            None => self.unlock(tx),
            Some(token) => self.transmit_again(tx, token),
        }
    }

    /// Transmits what other contexts have queued during a transmission. If more come, the work item
    /// goes on: the sender has to return to its program.
    #[cold]
    fn transmit_again(self: &Arc<Self>, mut tx: SpinLockBhGuard<'_, Tx>, token: Holding) {
        let mut left = Some(token);
        // The caller may lose its CPU before it pushes, and others have not asked for that.
        tx.queue.caller_pushes = false;
        for _ in 0..ROUNDS {
            let Some(token) = left else {
                break;
            };
            if tx.queue.is_cut_short {
                left = Some(token);
                break;
            }
            tx.transmit(self);
            left = self.path.tx.give_back(&mut tx, token);
        }
        self.want_link(&tx);
        // As in `want_link`. Not on the queue of the workers, which block for seconds.
        if left.is_some() && !self.has_ended() {
            self.node.queue.enqueue::<_, 3>(self.clone());
        }
        self.unlock(tx);
    }

    /// Wakes the worker if messages of others wait for a link.
    fn want_link(self: &Arc<Self>, tx: &Tx) {
        // With the lock held: the code that ends the connection sets the event, takes the lock, and
        // then cancels the work items.
        if tx.needs_link() && !self.has_ended() {
            self.want();
        }
    }

    /// Releases the lock, then drops finished messages.
    fn unlock(self: &Arc<Self>, mut tx: SpinLockBhGuard<'_, Tx>) {
        tx.queue.caller_pushes = false;
        if tx.queue.finished.is_empty() {
            return;
        }
        let mut finished = Fifo::new();
        finished.append(&mut tx.queue.finished);
        // Ended operations are finished messages. The work item gets the token, if it is free. Its
        // holder transmits again otherwise.
        let is_cut_short = core::mem::take(&mut tx.queue.is_cut_short);
        if is_cut_short && self.path.tx.ask().is_some() && !self.has_ended() {
            self.node.queue.enqueue::<_, 3>(self.clone());
        }
        drop(tx);
        drop(finished);
    }

    /// Sends an acknowledgement if the peer has asked for one since the last call. The transport
    /// calls it after a run of frames.
    pub(crate) fn flush_ack(self: &Arc<Self>) {
        if self.path.acked_in_run.read_once() != 0 {
            self.path.acked_in_run.store(0, Relaxed);
        }
        if !self.path.ack_wanted.read_once() || !self.path.ack_wanted.xchg(false, Full) {
            return;
        }
        let mut tx = self.path.tx.lock();
        tx.queue.ack_due = true;
        let token = self.path.tx.ask();
        tx.transmit(self);
        let delayed = tx.queue.ack_due;
        self.finish_and_unlock(tx, token);
        if delayed {
            self.count_rdma(Counter::IbAckSendDelayed);
        }
    }

    /// Sends a header without a message if the connection is up.
    pub(crate) fn send_header(self: &Arc<Self>) {
        let mut tx = self.path.tx.lock();
        if tx.link.is_some() {
            tx.queue.ack_due = true;
            self.transmit_and_unlock(tx);
        }
    }

    /// Queues the congestion map of the local address for sending. Returns `false` if nothing was
    /// queued. Then an unsent map will carry the same content, or the connection is down and sends
    /// a map when it comes up.
    pub(crate) fn send_congestion_map(self: &Arc<Self>) -> bool {
        let mut tx = self.path.tx.lock();
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
