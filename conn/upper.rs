// SPDX-License-Identifier: GPL-2.0

//! The node and its connections, as sockets use them.

use super::{Connection, Node};
use crate::kapi::net::Net;
use crate::socket::{Bound, Socket, TransportId, Upper, UpperConnection, UpperNode, Waiters};
use crate::stats::Counter;

impl Upper for Socket {
    type Node = Node;
    type Connection = Connection;
}

impl UpperNode for Node {
    #[inline]
    fn pool_limit(&self) -> usize {
        self.transports.pool_limit()
    }

    fn send_congestion_maps(&self, net: Net, bound: &Bound) {
        if bound.transport == TransportId::Loop {
            return;
        }
        self.walk_of(net, bound.addr, None, |connection| {
            let same = connection.key.local_scope() == bound.scope;
            if same && connection.send_congestion_map() {
                self.stats.inc(Counter::CongUpdateQueued);
            }
            true
        });
    }
}

impl UpperConnection for Connection {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn has_ended(&self) -> bool {
        Connection::has_ended(self)
    }
}
