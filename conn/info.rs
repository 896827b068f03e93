// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a connection for the `RDS_INFO_*` tables.

use super::{
    tx_queue::{
        QueueKind,
        BATCH, //
    },
    Connection,
    Path, //
};
use crate::{
    kapi::{
        sync::Walk,
        task,
        time,
        walk_in_batches, //
    },
    proto::{
        connect::{
            Event,
            State, //
        },
        info::{
            PayloadBytes,
            QueuePair,
            RdmaPath,
            TcpProgress, //
        },
        path_history::{
            DropReason,
            PathTimes, //
        },
        SECOND, //
    },
    uapi::{
        RDS_INFO_CONNECTION_FLAG_CONNECTED,
        RDS_INFO_CONNECTION_FLAG_CONNECTING, //
    }, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Number of times that a walk may pass all messages.
const PASSES: usize = 4;

/// Snapshot of a queued message.
#[derive(Clone, Copy)]
pub(crate) struct MessageInfo {
    pub(crate) sequence: u64,
    pub(crate) len: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

/// Snapshot of a path.
pub(crate) struct ConnInfo {
    pub(crate) next_tx: u64,
    pub(crate) next_rx: u64,
    /// `RDS_INFO_CONNECTION_FLAG_*`.
    pub(crate) flags: u8,
    pub(crate) times: PathTimes,
    pub(crate) payload: PayloadBytes,
    /// Messages that were sent again.
    pub(crate) retransmissions: u64,
}

impl Path {
    /// Returns a snapshot.
    ///
    /// A resting connection is shown as connected, like in C RDS, which keeps its queue pair. A
    /// flag of this module distinguishes it.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn info(&self) -> ConnInfo {
        // CAST: each flag is one bit of a byte.
        const CONNECTING: u8 = RDS_INFO_CONNECTION_FLAG_CONNECTING as u8;
        const CONNECTED: u8 = RDS_INFO_CONNECTION_FLAG_CONNECTED as u8;
        /// Flag of this module.
        const RESTING: u8 = 0x80;
        let tx = self.tx.lock();
        let state = self.state.load(Relaxed);
        let next_tx = tx.queue.state.next_sequence();
        let rests = state == State::Down as u32 && tx.idle_path.is_some();
        let times = tx.history.times(rests);
        let acked = tx.queue.acked_bytes;
        let retransmissions = tx.queue.state.retransmissions();
        drop(tx);
        let rx = self.rx.lock();
        // C RDS shows 0 before the first message.
        let next_rx = if rx.is_unused() {
            0
        } else {
            rx.next_sequence()
        };
        let received = rx.bytes();
        drop(rx);
        ConnInfo {
            next_tx,
            next_rx,
            flags: if state == State::Up as u32 {
                CONNECTED
            } else if rests {
                CONNECTED | RESTING
            } else if state == State::Down as u32 {
                0
            } else {
                CONNECTING
            },
            times,
            payload: PayloadBytes { acked, received },
            retransmissions,
        }
    }

    /// Notes the reason of a failure, unless this endpoint has had one before.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(super) fn note_drop_reason(&self, reason: DropReason) {
        // Failures that follow are most likely consequences.
        let _: Result<_, _> = self.drop_reason.cmpxchg(0, reason.number(), Relaxed);
    }

    /// Returns the RDMA path while the connection is up, or the last one while it rests.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn rdma_path(&self) -> Option<RdmaPath> {
        let tx = self.tx.lock();
        match &tx.link {
            Some(link) => Some(link.path()),
            None if self.state.load(Relaxed) == State::Down as u32 => tx.idle_path,
            None => None,
        }
    }

    /// Returns the queue pair of an RDMA connection while it is up.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn queue_pair(&self) -> Option<QueuePair> {
        let link = self.tx.lock().link.clone();
        link?.queue_pair()
    }

    /// Returns the CPU of the last completions or packets while the path is up.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn cpu(&self) -> Option<u32> {
        let link = self.tx.lock().link.clone();
        link?.cpu()
    }

    /// Returns the progress of a connection over TCP while it is up.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn tcp_progress(&self) -> Option<TcpProgress> {
        let link = self.tx.lock().link.clone();
        link?.tcp_progress()
    }

    /// Calls `each`, without a lock, for the messages of a queue, oldest first, until it fails.
    ///
    /// Messages that are added or removed meanwhile may be missed, and none is visited twice. There
    /// may be millions, of many sockets. The walk begins again when a socket cancels its messages,
    /// but ends where the queue ended at the start. Sockets may do so all the time. So it also ends
    /// after [`PASSES`] times as many messages as there were. Those behind that point are missed.
    ///
    /// # Errors
    ///
    /// - `EINTR` if the process is being killed.
    /// - Any error of `each`.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn try_for_each_message(
        &self,
        queue_kind: QueueKind,
        mut each: impl FnMut(&MessageInfo) -> Result,
    ) -> Result {
        let mut walk = Walk::new();
        let (seen, mut begun) = (Cell::new(0), None);
        walk_in_batches::<MessageInfo, _, BATCH>(
            |batch| {
                task::check_killed()?;
                let mut tx = self.tx.lock();
                let next = tx.queue.state.next_sequence();
                let queue = tx.queue.queue_kind(queue_kind);
                let (end, left) =
                    begun.get_or_insert_with(|| (next, queue.len().saturating_mul(PASSES)));
                let end = *end;
                if *left == 0 {
                    return Ok(false);
                }
                *left = left.saturating_sub(BATCH);
                Ok(queue.walk(&mut walk, BATCH, |message| {
                    if message.sequence >= end {
                        return false;
                    }
                    if message.sequence > seen.get() {
                        batch.push(MessageInfo {
                            sequence: message.sequence,
                            len: message.len,
                            sport: message.sport,
                            dport: message.dport,
                        });
                    }
                    true
                }))
            },
            |message| {
                seen.set(message.sequence);
                each(&message)
            },
        )
    }
}

impl Connection {
    /// Publishes the state that an event leads to, and notes the change for the table of paths. The
    /// worker calls this.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn enter(&self, event: Event, from: State, to: State) {
        if from == to {
            return;
        }
        let noted = DropReason::from_number(self.path.drop_reason.load(Relaxed));
        let reason = noted
            .filter(|reason| *reason != DropReason::None)
            .unwrap_or_else(|| DropReason::of_event(event, self.is_stream()));
        // CAST: the seconds of 64 bits of nanoseconds.
        let now = (time::real_ns() / SECOND) as i64;
        let mut tx = self.path.tx.lock();
        tx.history.note(from, to, reason, now);
        // Readers of the table find times that belong to the state.
        self.path.state.store(to as u32, Relaxed);
    }
}
