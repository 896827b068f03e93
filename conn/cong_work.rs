// SPDX-License-Identifier: GPL-2.0

//! Sends changed congestion maps to the peers of their addresses.
//!
//! An address may have any number of connections, and a map takes 8 KiB for each. So a softirq that
//! changes a map only schedules work of the node. A call that reads sends the map itself: the
//! program that causes it pays, and its next message finds the peer notified. `proto::cong_pace`
//! bounds the number of rounds. Maps that have to wait are left to the work.

use super::{
    Connection,
    Node, //
};
use crate::{
    cong::{
        MapKey,
        NextRound, //
    },
    kapi::{
        net::Net,
        task::without_io,
        time, //
    },
    socket::{
        map_key,
        Bound, //
    },
    stats::Counter, //
};
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 3> for Node { self.cong_work }
}

/// Begins one round for each run, so that other work items get their turn.
impl WorkItem<3> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| match this.cong.next_round(time::monotonic_ns()) {
            NextRound::Send(key) => {
                this.send_map(key);
                this.send_maps_in(0);
            }
            NextRound::Wait(wait) => this.send_maps_in(wait),
            NextRound::Done => {}
        });
    }
}

impl Node {
    /// Sends the map of an address to all its peers, in a round that has begun.
    fn send_map(&self, key: MapKey) {
        let mut queued = 0usize;
        self.walk_of(key.net, key.addr, None, |connection| {
            // A map on another path may come too late, so the peer ignores it.
            let is_due = connection.key.path == 0 && connection.key.local_scope() == key.scope;
            if is_due && connection.send_congestion_map() {
                queued = queued.saturating_add(1);
            }
            true
        });
        self.stats.add(Counter::CongUpdateQueued, queued);
        self.cong.end_round(key);
    }

    /// Schedules the next round after `wait` nanoseconds. A map that has to wait does not delay a
    /// round that is due at once.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn send_maps_in(self: &Arc<Self>, wait: u64) {
        // With the table locked, because `Node::stop` closes it before it stops the work.
        let connections = self.connections.lock();
        if connections.closed {
            return;
        }
        match wait {
            0 => self.queue.arm::<_, 3>(self.clone(), 0),
            wait => {
                let wait_ms = u32::try_from(wait.div_ceil(1_000_000)).unwrap_or(u32::MAX);
                self.queue.arm_unless_set::<_, 3>(self.clone(), wait_ms);
            }
        }
    }

    /// Sends the map of an address, which has changed, if `at_once` and it need not wait. Otherwise
    /// schedules a round for it.
    ///
    /// # Context
    ///
    /// Process context if `at_once`, otherwise any context except hard interrupt.
    pub(super) fn send_changed_map(self: &Arc<Self>, net: Net, bound: &Bound, at_once: bool) {
        let Some(key) = map_key(net, bound) else {
            return;
        };
        let now = time::monotonic_ns();
        match at_once && self.cong.begin_round(key, now) {
            true => self.send_map(key),
            false => self.send_maps_in(self.cong.wait(key, now)),
        }
    }
}

impl Connection {
    /// Sends the local map before a ping, if the peer may not have been sent its last change. The
    /// peer drops a pong for a full port. So a program that has emptied its port gets the pong of a
    /// ping on the first path. One on another path may overtake the map: this module answers it all
    /// the same, and C RDS does not.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cold]
    pub(super) fn send_map_before_ping(self: &Arc<Self>) {
        let key = MapKey {
            net: self.key.net,
            addr: self.key.laddr,
            scope: self.key.local_scope(),
        };
        let first = self.first.as_ref().unwrap_or(self);
        if self.node.cong.is_unsent(key) && first.send_congestion_map() {
            self.node.stats.inc(Counter::CongUpdateQueued);
        }
    }
}
