// SPDX-License-Identifier: GPL-2.0

//! What others are shown of a connection.

use super::Connection;
use crate::kapi::{sync::Walk, task};
use crate::proto::{connect::State, info::RdmaPath};
use kernel::{prelude::*, sync::atomic::Relaxed};

/// Messages that are looked at from one time to the next that their queue is locked.
pub(super) const BATCH: usize = 64;

/// A queue of messages to the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Those that wait to be sent.
    Unsent,
    /// Those that the peer has not acknowledged.
    Sent,
}

/// What is shown of a message to the peer.
#[derive(Clone, Copy, Default)]
pub(crate) struct MessageInfo {
    pub(crate) sequence: u64,
    pub(crate) len: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

/// What is shown of a connection.
pub(crate) struct ConnInfo {
    pub(crate) next_tx: u64,
    pub(crate) next_rx: u64,
    /// `RDS_INFO_CONNECTION_FLAG_*`.
    pub(crate) flags: u8,
}

impl Connection {
    /// How the connection is now. Process context.
    ///
    /// One that rests is shown as C RDS would show it, which keeps its queue pair: connected. A
    /// flag of our own tells it apart.
    pub(crate) fn info(&self) -> ConnInfo {
        /// Source: `RDS_INFO_CONNECTION_FLAG_*` in `include/uapi/linux/rds.h`.
        const CONNECTING: u8 = 2;
        const CONNECTED: u8 = 4;
        const RESTING: u8 = 0x80;
        let tx = self.tx.lock();
        let state = self.state.load(Relaxed);
        let next_tx = tx.queue.state.next_sequence();
        let rests = tx.rest.is_some();
        drop(tx);
        let rx = self.rx.lock();
        // As C RDS has it.
        let next_rx = if rx.is_unused() {
            0
        } else {
            rx.next_sequence()
        };
        drop(rx);
        ConnInfo {
            next_tx,
            next_rx,
            flags: if state == State::Up as u32 {
                CONNECTED
            } else if state == State::Down as u32 {
                if rests {
                    CONNECTED | RESTING
                } else {
                    0
                }
            } else {
                CONNECTING
            },
        }
    }

    /// The path of the connection while it is up, or its last one while it rests. Process context.
    pub(crate) fn path(&self) -> Option<RdmaPath> {
        let tx = self.tx.lock();
        match &tx.link {
            Some(link) => Some(link.path()),
            None if self.state.load(Relaxed) == State::Down as u32 => tx.rest,
            None => None,
        }
    }

    /// Calls `each`, without a lock, for the messages of a queue, oldest first, until it fails. What comes
    /// or goes meanwhile may be missed, and no message is seen twice. May sleep. Fails with EINTR if the
    /// process is to die.
    ///
    /// There may be millions, of many sockets. The walk begins again when a socket cancels its messages,
    /// but ends where the queue did at first.
    pub(crate) fn try_for_each_message(
        &self,
        queue_kind: QueueKind,
        mut each: impl FnMut(&MessageInfo) -> Result,
    ) -> Result {
        let mut walk = Walk::new();
        let (mut seen, mut end) = (0, None);
        loop {
            let mut batch = [MessageInfo::default(); BATCH];
            let mut slots = batch.iter_mut();
            let mut tx = self.tx.lock();
            let end = *end.get_or_insert(tx.queue.state.next_sequence());
            let queue = tx.queue.queue_kind(queue_kind);
            let more = queue.walk(&mut walk, BATCH, |message| {
                if message.sequence >= end {
                    return false;
                }
                if message.sequence <= seen {
                    return true;
                }
                if let Some(slot) = slots.next() {
                    *slot = MessageInfo {
                        sequence: message.sequence,
                        len: message.len,
                        sport: message.sport,
                        dport: message.dport,
                    };
                }
                true
            });
            drop(tx);
            let filled = BATCH.saturating_sub(slots.len());
            for message in batch.iter().take(filled) {
                seen = message.sequence;
                each(message)?;
            }
            task::check_killed()?;
            if !more {
                return Ok(());
            }
        }
    }
}
