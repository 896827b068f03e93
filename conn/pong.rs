// SPDX-License-Identifier: GPL-2.0

//! Answers to the pings of a peer. A ping is a message to port 0.

use super::{
    path::PathEvent,
    Connection, //
};
use crate::{
    kapi::net::Sock,
    msg::{
        Message,
        PongSlot, //
    },
    proto::{
        mprds::Handshake,
        wire::{
            Header,
            PING_PORT,
            PROBE_PORT, //
        }, //
    },
    socket::Socket,
    stats::Counter, //
};
use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

impl Connection {
    /// Answers a ping. A probe on another path than the first one ends the link: the peer has
    /// restarted, and takes this path for the first one.
    pub(super) fn answer(self: &Arc<Self>, header: &Header) {
        if let Some(first) = self.first.as_ref().filter(|_| header.sport == PROBE_PORT) {
            first.path.rx.lock().negotiation.receive_elsewhere();
            self.path.set_event(PathEvent::Misplaced);
            return self.wake_worker();
        }
        self.answer_ping(header);
    }

    /// Answers a ping with an empty message from port 0. No program has sent a probe over TCP, and
    /// the paths of the peer depend on the answer.
    fn answer_ping(self: &Arc<Self>, header: &Header) {
        // A keepalive has source port 0, so there is no port to answer.
        if header.sport == PING_PORT {
            return;
        }
        let is_probe = self.is_stream() && Handshake::of(header).is_some();
        if !is_probe && !self.node.tunables.answers_pings() {
            self.note_drop(Counter::RecvDropNoSock, 1);
            return;
        }
        self.node.stats.inc(Counter::RecvPing);
        let is_queued = match self.room_for_pong(header.sport, is_probe) {
            Some(slot) => Message::pong(self.pools(), header.sport, slot)
                .is_ok_and(|pong| self.send(pong).is_ok()),
            None => is_probe && self.answer_without_room(),
        };
        if is_queued {
            self.node.stats.inc(Counter::SendPong);
        } else {
            self.note_drop(Counter::SendPongDropped, 1);
        }
    }

    /// Answers a probe although there is no room for pongs. Returns `false` if the last such answer
    /// has not arrived. The peer repeats its probe.
    fn answer_without_room(self: &Arc<Self>) -> bool {
        let Ok(answer) = Message::empty(self.pools(), PING_PORT, PROBE_PORT) else {
            return false;
        };
        let mut tx = self.path.tx.lock();
        if self.has_ended() || tx.answer_sequence > self.path.acked.load(Relaxed) {
            return false;
        }
        tx.answer_sequence = tx.queue.state.next_sequence();
        let up = tx.link.is_some();
        self.queue_and_unlock(tx, answer);
        if !up {
            self.want();
        }
        true
    }

    /// Returns a slot for a pong to a port. `None` if the port is congested as far as this path can
    /// tell, or too many messages wait for the peer. Answers to probes have no port.
    fn room_for_pong(&self, port: u16, is_probe: bool) -> Option<PongSlot> {
        const MOST: usize = 4096;
        /// With fewer messages on a connection it gets a slot even if pongs for other peers have
        /// used all.
        const FEW: usize = 16;
        // The maps of a peer that runs this module come on the first path. A ping on another one
        // may overtake the map that says that its port has room. So that peer drops the pong itself
        // if the port is full.
        let follows_map = self.first.is_none() || !self.path.rx.lock().peer_is_rds_rust();
        if follows_map && !is_probe && self.is_congested(port) {
            return None;
        }
        let tx = self.path.tx.lock();
        let backlog = tx.queue.unsent.len().saturating_add(tx.queue.sent.len());
        drop(tx);
        match backlog {
            0..=MOST => {
                let pongs = &self.node.limits.pongs;
                pongs.take(self.node.is_of_user(), backlog < FEW)
            }
            _ => None,
        }
    }

    /// Returns `true` for a pong to a full port, on another path than the first one. The peer has
    /// sent it without regard to the map.
    #[inline]
    pub(super) fn is_pong_to_full_port(&self, header: &Header, sk: &Sock<Socket>) -> bool {
        self.first.is_some() && header.sport == PING_PORT && sk.is_congested()
    }
}
