// SPDX-License-Identifier: GPL-2.0

//! Periodic keepalive check of all connections that wait for their peer. A peer that is silent for
//! long gets a keepalive, and the link is given up if no answer comes. `proto::keepalive` decides
//! when.

use super::{
    Connection,
    Node,
    Path, //
};
use crate::{
    kapi::{
        errno::Errno,
        print::pr_info_ratelimited,
        task::without_io,
        time, //
    },
    msg::Message,
    proto::{
        keepalive::{
            KeepaliveDecision,
            KeepaliveLimit,
            LinkActivity,
            LinkSnapshot,
            Through, //
        },
        stall::{
            QueueSnapshot,
            Stall, //
        }, //
    },
    stats::Counter, //
};
use core::convert::Infallible;
use kernel::{
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Node { self.listening }
}

impl WorkItem<1> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let limit = this.tunables.keepalive();
            let Ok(()) = this.try_for_each::<Infallible>(|connection| {
                connection.listen(limit);
                connection.check_paths_if_due();
                Ok(())
            });
            this.listen_later();
        });
    }
}

impl Node {
    /// Schedules the next keepalive check, as long as there are connections.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn listen_later(self: &Arc<Self>) {
        let period_ms = self.tunables.keepalive().period_ms();
        self.with_connections(|| self.queue.arm_unless_set::<_, 1>(self.clone(), period_ms));
    }
}

impl Path {
    /// Returns the signs of activity that the link reports. `None` if there is no link.
    ///
    /// # Context
    ///
    /// Process context, without a lock.
    pub(super) fn activity(&self) -> Option<LinkActivity> {
        let link = self.tx.lock().link.clone();
        Some(link?.activity())
    }

    /// Returns `true` if the device is executing an RDMA operation.
    pub(super) fn operates(&self) -> bool {
        self.activity().is_some_and(|activity| activity.operates)
    }
}

impl Connection {
    /// Checks for signs of life of the peer, if something waits for it. A stream is always checked,
    /// because this node may wait for the rest of a frame, which is not known here.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn listen(self: &Arc<Self>, limit: KeepaliveLimit) {
        let mut tx = self.path.tx.lock();
        let rx = self.path.rx.lock();
        let (partial, next_rx) = (rx.has_partial(), rx.next_sequence());
        drop(rx);
        let waits = tx.is_pending() || partial;
        let is_checked = waits || self.is_stream();
        let Some(link) = tx.link.clone().filter(|_| is_checked) else {
            tx.keepalive.pause();
            tx.stall = Stall::new();
            return;
        };
        let times_up = tx.times_up;
        // Messages sent after this point count as handed to the device. So a keepalive among them
        // is not too early.
        let unsent = tx.queue.unsent.front().map(|first| first.sequence);
        drop(tx);
        let activity = link.activity();
        let mut tx = self.path.tx.lock();
        if tx.link.is_none() || tx.times_up != times_up {
            return;
        }
        let snapshot = LinkSnapshot {
            times_up,
            through: Through {
                acked: self.path.acked.load(Relaxed),
                next_rx,
            },
            waits,
            unsent,
            activity,
        };
        let queue = QueueSnapshot {
            times_up,
            oldest: tx.oldest().filter(|_| tx.is_pending()),
            arrived: activity.arrived,
        };
        let now = time::monotonic_ns();
        let stalls = tx.stall.check(&queue, now, limit);
        let decision = tx.keepalive.check(&snapshot, now, limit);
        match (decision, tx.keepalive_sequence) {
            (KeepaliveDecision::Keep, _) => drop(tx),
            // Another keepalive would not be answered sooner.
            (KeepaliveDecision::Send, Some(sequence)) => {
                tx.keepalive.note_queued(sequence);
                drop(tx);
            }
            (KeepaliveDecision::Send, None) => {
                drop(tx);
                self.send_keepalive(times_up);
            }
            (KeepaliveDecision::GiveUp, _) => {
                self.node.stats.inc(Counter::ConnKeepaliveTimeout);
                // With the lock, so that the teardown of this link clears the reason.
                self.note_failure("keepalive timeout", Errno::TimedOut);
                drop(tx);
                pr_info_ratelimited!(
                    self.log_limit,
                    "{}: the peer does not answer: dropping the connection\n",
                    self.key
                );
                link.give_up();
            }
        }
        // Also if the peer is asked for a sign of life now. It is reported once only.
        if stalls && decision != KeepaliveDecision::GiveUp {
            self.note_stall();
        }
    }

    /// Counts and logs that the peer lives and takes nothing. The connection stays: the next one
    /// would find the same peer, and operations of others would be lost.
    fn note_stall(&self) {
        self.node.stats.inc(Counter::ConnStalled);
        pr_info_ratelimited!(
            self.log_limit,
            "{}: the peer takes no messages, although it is connected\n",
            self.key
        );
    }

    /// Queues a keepalive behind all messages, if the link is still the one that was checked.
    ///
    /// If there is no memory it still counts as sent. The memory may be used by messages that wait
    /// for this very peer.
    fn send_keepalive(self: &Arc<Self>, times_up: u64) {
        let keepalive = Message::keepalive(self.pools());
        let mut tx = self.path.tx.lock();
        if tx.link.is_none() || tx.times_up != times_up {
            return;
        }
        let sequence = tx.queue.state.next_sequence();
        tx.keepalive.note_queued(sequence);
        if let Ok(keepalive) = keepalive {
            tx.keepalive_sequence = Some(sequence);
            self.queue_and_unlock(tx, keepalive);
            self.node.stats.inc(Counter::ConnKeepaliveSent);
        }
    }
}
