// SPDX-License-Identifier: GPL-2.0

//! Listens, every now and then, for the peers of all connections on which something waits: who is silent for long
//! is asked for an answer, and given up if there is none. `proto::silence` says when.

use super::{Connection, Counter, Node};
use crate::kapi::{errno::Errno, print::pr_info_ratelimited, task::without_io, time};
use crate::msg::Message;
use crate::proto::keepalive::{
    KeepaliveDecision, KeepaliveLimit, LinkActivity, LinkSnapshot, Through,
};
use core::convert::Infallible;
use kernel::{
    sync::{atomic::Relaxed, Arc},
    workqueue::WorkItem,
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Node { self.listening }
}

impl WorkItem<1> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let limit = this.tunables.silence();
            let Ok(()) = this.try_for_each::<Infallible>(|connection| {
                connection.listen(limit);
                Ok(())
            });
            this.listen_later();
        });
    }
}

impl Node {
    /// Sees to it that somebody listens for the peers, as long as there are connections. As
    /// [`look_later`](Self::look_later).
    pub(super) fn listen_later(self: &Arc<Self>) {
        if self.has_connections() {
            let period_ms = self.tunables.silence().period_ms();
            self.queue.arm_unless_set::<_, 1>(self.clone(), period_ms);
        }
    }
}

impl Connection {
    /// What the link tells of the peer, if there is one. Process context, without a lock.
    pub(super) fn activity(&self) -> Option<LinkActivity> {
        let link = self.tx.lock().link.clone();
        Some(link?.activity())
    }

    /// Sees whether the peer is heard, if something waits for it. Sleeps.
    fn listen(&self, limit: KeepaliveLimit) {
        let mut tx = self.tx.lock();
        let rx = self.rx.lock();
        let (partial, next_rx) = (rx.has_partial(), rx.next_sequence());
        drop(rx);
        let waits = tx.is_pending() || partial;
        let Some(link) = tx.link.clone().filter(|_| waits) else {
            tx.silence.pause();
            return;
        };
        let times_up = tx.times_up;
        // What is sent after this look counts as given to the device, so a question among it is not too early.
        let unsent = tx.queue.unsent.front().map(|first| first.sequence);
        drop(tx);
        let activity = link.activity();
        let mut tx = self.tx.lock();
        if tx.link.is_none() || tx.times_up != times_up {
            return;
        }
        let snapshot = LinkSnapshot {
            times_up,
            through: Through {
                acked: self.acked.load(Relaxed),
                next_rx,
            },
            waits,
            unsent,
            activity,
        };
        let decision = tx.silence.check(&snapshot, time::monotonic_ns(), limit);
        match (decision, tx.asking) {
            (KeepaliveDecision::Keep, _) => {}
            // Another one would not be answered sooner.
            (KeepaliveDecision::Ask, Some(sequence)) => tx.silence.asked(sequence),
            (KeepaliveDecision::Ask, None) => {
                drop(tx);
                self.ask(times_up);
            }
            (KeepaliveDecision::GiveUp, _) => {
                drop(tx);
                self.node.stats.inc(Counter::ConnKeepaliveTimeout);
                self.note_failure("silence", Errno::TimedOut);
                pr_info_ratelimited!("{}: the peer does not answer, giving it up\n", self.key);
                link.give_up();
            }
        }
    }

    /// Sends the peer something that it must answer, behind all else, if the link is the one that was looked at.
    /// Without memory it counts as asked all the same: that there is none may be for what waits for this peer.
    fn ask(&self, times_up: u64) {
        let question = Message::question(self.pools());
        let mut tx = self.tx.lock();
        if tx.link.is_none() || tx.times_up != times_up {
            return;
        }
        let sequence = tx.queue.state.next_sequence();
        tx.silence.asked(sequence);
        if let Ok(question) = question {
            tx.asking = Some(sequence);
            self.queue_and_unlock(tx, question);
            self.node.stats.inc(Counter::ConnKeepaliveSent);
        }
    }
}
