// SPDX-License-Identifier: GPL-2.0

//! The node and its connections, as sockets use them.

use super::{
    Connection,
    Node, //
};
use crate::{
    kapi::net::Net,
    socket::{
        Bound,
        Declared,
        Forward,
        Socket,
        UpperConnection,
        UpperNode,
        Waiters, //
    }, //
};
use kernel::sync::Arc;

impl Forward for Declared {
    type Socket = Socket;
    type Node = Node;
    type Connection = Connection;
}

impl UpperNode for Node {
    #[inline]
    fn pool_limit(&self) -> usize {
        self.transports.pool_limit()
    }

    fn announce_map(self: &Arc<Self>, net: Net, bound: &Bound, at_once: bool) {
        self.send_changed_map(net, bound, at_once);
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
