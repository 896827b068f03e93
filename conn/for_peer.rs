// SPDX-License-Identifier: GPL-2.0

//! Connections that only the peer may need.
//!
//! A peer over TCP may have something to send, and rely on this node to connect. Attempts for it
//! are limited together, see `proto::connect`.

use super::{
    idle::is_unused,
    path::PathEvent,
    table::AttemptGroup,
    Connection, //
};
use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};

impl Connection {
    /// Requests a connection because the peer has something to send. It may not ask again, so
    /// attempts go on until it has sent a frame. Returns `false`, and does nothing, if the
    /// connection ends for good.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn want_for_peer(self: &Arc<Self>) -> bool {
        // The connection ends under this lock, unless the event is set.
        let waiting = self.path.request.lock();
        if self.has_ended() {
            return false;
        }
        self.path.peer_may_wait.store(true, Relaxed);
        self.path.set_event(PathEvent::Wanted);
        drop(waiting);
        self.wake_worker();
        true
    }

    /// Returns the path that the peer connects from this TCP port. `None` if it was not accepted. A
    /// peer that has not said that its ports have an index uses any for the first one.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn path_of_port(&self, port: u16) -> Option<u8> {
        self.path.rx.lock().negotiation.path_of_port(port)
    }

    /// Notes the first frame on a link. A peer that `acknowledges` messages asks for a connection
    /// as long as it needs one. Another one relies on the node with the lower address, which
    /// connects again by itself.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn note_first_frame(&self, acknowledges: bool) {
        let may_wait = self.is_lower() && !acknowledges;
        self.path.peer_may_wait.store(may_wait, Relaxed);
    }

    /// Returns the group that limits attempts which only the peer may need. Anybody can be a
    /// stranger, so strangers must not delay the others.
    pub(super) fn peer_group(&self) -> AttemptGroup {
        match self.path.has_answered.load(Relaxed) {
            true => AttemptGroup::Peers,
            false => AttemptGroup::Strangers,
        }
    }

    /// Notes that the peer has answered: a connection that a program needed is up. One that a peer
    /// over TCP requested comes up with anybody, so there it takes a message of either side.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, without a lock.
    pub(super) fn note_answer(&self) {
        if self.path.has_answered.load(Relaxed) {
            return;
        }
        let Some(user) = self.creator else {
            self.path.has_answered.store(true, Relaxed);
            return;
        };
        let mut connections = self.node.connections.lock();
        // A connection that is forgotten leaves the counts by itself, with this lock.
        if self.path.has_answered.xchg(true, Full) || self.has_ended() {
            return;
        }
        connections.tree.note_answer(user);
        drop(connections);
        if let Some(charge) = &self.quota_charge {
            charge.note_answer();
        }
    }

    /// Looks for a first message on a connection over TCP: of the peer, or of a program of this
    /// node. Its peer is no stranger any more. Returns `true` if there was one.
    ///
    /// # Context
    ///
    /// Process context, without a lock that is below `Node::connections`.
    pub(crate) fn look_for_message(self: &Arc<Self>) -> bool {
        let tx = self.path.tx.lock();
        let is_used = !is_unused(&tx, &self.path.rx.lock());
        drop(tx);
        if is_used {
            let was_stranger = self.is_of_stranger();
            self.note_answer();
            if was_stranger {
                // The peer gets probes from now on.
                self.check_paths();
            }
        }
        is_used
    }
}
