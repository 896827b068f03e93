// SPDX-License-Identifier: GPL-2.0

//! Interface to the node and the connections, which are above sockets.
//!
//! A socket refers to its node, to the connection of its last route and to connections that it
//! waits for. Code of this folder knows them as [`Forward::Node`] and [`Forward::Connection`], and
//! calls only the traits here.
//!
//! [`Forward::Node`]: super::Forward::Node
//! [`Forward::Connection`]: super::Forward::Connection

use super::{
    Bound,
    NetState,
    Waiters, //
};
use crate::kapi::net::Net;
use core::ops::Deref;
use kernel::sync::Arc;

/// The node, as its sockets use it.
pub(crate) trait UpperNode: Deref<Target = NetState> {
    /// Returns the maximum size of each buffer pool, in bytes.
    ///
    /// # Context
    ///
    /// Any context.
    fn pool_limit(&self) -> usize;

    /// Sends the map of an address, which has changed, to all peers. A connection that comes up
    /// meanwhile sends it by itself. Unless `at_once`, or if the address has sent many maps, work
    /// of the node does it.
    ///
    /// # Context
    ///
    /// Process context if `at_once`, otherwise any context except hard interrupt. No lock held.
    fn announce_map(self: &Arc<Self>, net: Net, bound: &Bound, at_once: bool);
}

/// A connection, as sockets use it that wait for a congested port of the peer.
pub(crate) trait UpperConnection {
    /// Returns the sockets that wait.
    ///
    /// # Context
    ///
    /// Any context.
    fn waiters(&self) -> &Waiters;

    /// Returns `true` if the connection has ended for good. It has woken all waiters then.
    ///
    /// # Context
    ///
    /// Any context.
    fn has_ended(&self) -> bool;
}
