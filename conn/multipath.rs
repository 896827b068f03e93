// SPDX-License-Identifier: GPL-2.0

//! Several paths of a connection over TCP: multipath RDS, or mprds.
//!
//! The worker of the first path publishes what was negotiated, so there is one change at a time. If
//! the peer has restarted, the workers of other paths end their links, and move their messages to
//! the first path. New ports choose among several paths again once that is done.
//!
//! A generation in the first handshake shows a restart before the peer has another path. The number
//! of paths shows it when the peer has several already. Those are left alone: what they have sent
//! may have arrived, and would arrive twice.
//!
//! Errors: paths for which there is no memory or room are not offered to the peer.

use super::{
    connection::Paths,
    key::ConnKey,
    path::PathEvent,
    path_set::Others,
    send::NotQueued,
    tx_queue::BATCH,
    Connection, //
};
use crate::{
    kapi::{
        sync::{
            Fifo,
            Item, //
        },
        time, //
    },
    msg::{
        Message,
        MessagePlace, //
    },
    proto::{
        connect::State,
        mprds::PathCount,
        wire::{
            PING_PORT,
            PROBE_PORT, //
        }, //
    },
    stats::Counter, //
};
use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

/// Time in milliseconds after which a path that only the peer may need asks again if it may be
/// connected. The first path wakes it before that.
const PEER_WAIT_MS: u32 = 60_000;

impl Connection {
    /// Returns the first path of the connection, of which this is one.
    pub(super) fn first(&self) -> &Self {
        self.first.as_deref().unwrap_or(self)
    }

    /// Returns the paths of the connection, if it may have several.
    fn set(&self) -> Option<&Paths> {
        self.first().paths.as_deref()
    }

    /// Returns the other paths of the connection, of which this is the first one.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn other_paths(&self) -> Others<Arc<Self>> {
        self.paths.as_ref().map(|set| set.all()).unwrap_or_default()
    }

    /// Returns `true` if the message belongs to this path, whose queue is locked.
    #[inline]
    pub(super) fn is_path_of(&self, message: &Message) -> bool {
        let Some(place) = &message.place else {
            return true;
        };
        let path = self.key.path;
        place.belongs(path, self.set().is_none_or(|set| set.is_open(path)))
    }

    /// Queues a message of a program, on the path of its port, and posts as much as possible.
    /// Called for the first path.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send`].
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    pub(crate) fn send_by_port(
        self: &Arc<Self>,
        mut message: Item<Message>,
    ) -> Result<(), Item<Message>> {
        let Some(set) = &self.paths else {
            let sent = self.try_send_of_program(message);
            return sent.map_err(NotQueued::into_message);
        };
        message.place = Some(set.place(message.sport));
        loop {
            let path = message.place.as_ref().map_or(0, MessagePlace::path);
            if path == 0 {
                match self.try_send_of_program(message) {
                    Ok(()) => return Ok(()),
                    Err(NotQueued::Elsewhere(back)) => message = back,
                    Err(NotQueued::Ended(mut back)) => {
                        // The next connection has places of its own.
                        back.place = None;
                        return Err(back);
                    }
                }
                continue;
            }
            message = match set.get(path) {
                Some(other) => match other.try_send_of_program(message) {
                    Ok(()) => return Ok(()),
                    Err(back) => {
                        // A path that has ended leaves the set under the lock of the table.
                        let _ = self.node.find_connection(&other.key);
                        back.into_message()
                    }
                },
                // The connection was idle, and the path was forgotten.
                None => {
                    if let Some(place) = &message.place {
                        set.leave_if_missing(path, place);
                    }
                    message
                }
            };
        }
    }

    /// Returns the number of milliseconds after which to ask again if this path may be connected,
    /// unless [`PathEvent::Allowed`] comes before. 0 if it may be now.
    ///
    /// `for_peer`: only the peer may need it; `begins`: this is the first call since it was down.
    ///
    /// If the first path has no link, the path requests one: if messages wait, or for the peer at
    /// the first call. Before it returns 0, it sends a header on the first path.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn path_wait_ms(self: &Arc<Self>, for_peer: bool, begins: bool) -> u32 {
        let Some(first) = &self.first else {
            return 0;
        };
        // Messages of a program end the longer wait at once.
        let wait_ms = match for_peer {
            true => PEER_WAIT_MS,
            false => self.node.tunables.timing().backoff_max_ms.max(1),
        };
        // Only the link of the first path shows that the peer is the same.
        if !first.path.is_linked() {
            if for_peer && begins {
                first.want_for_peer();
            } else if self.path.is_pending() {
                // The messages of this path count as its own.
                first.want();
            }
            return wait_ms;
        }
        let may_connect = first.path.rx.lock().negotiation.may_connect(self.key.path);
        if !may_connect || self.has_to_move() {
            return wait_ms;
        }
        // If the peer has restarted, its TCP resets the link for this header.
        first.send_header();
        0
    }

    /// Returns `true` if messages wait on other paths of the connection, of which this is the first
    /// one. They need its link.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn others_are_pending(&self) -> bool {
        let others = self.other_paths();
        let mut paths = others.iter().flatten();
        paths.any(|other| other.path.is_pending())
    }

    /// Returns `true` if another path has a link, or tries to get one. This is the first one.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn others_are_active(&self) -> bool {
        let has_begun = |other: &Arc<Self>| other.path.state.load(Relaxed) != State::Down as u32;
        self.paths.as_ref().is_some_and(|set| set.any(has_begun))
    }

    /// Returns `true` if the peer of this other path runs this module. It had shown that before the
    /// path could be used, and the first path may have no link now.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn is_path_to_rds_rust(&self) -> bool {
        self.set().is_some_and(|set| set.peer_is_rds_rust())
    }

    /// Returns `true` if this is another path, and the first one shows that the peer runs C RDS.
    ///
    /// C RDS sends its map on the path that transmits next. So it may send nothing on this path.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn is_path_to_c(&self) -> bool {
        self.first.as_ref().is_some_and(|first| {
            let rx = first.path.rx.lock();
            rx.negotiation.has_begun() && !rx.peer_is_rds_rust()
        })
    }

    /// Makes the other paths ask at once if they may be connected.
    fn allow_others(&self) {
        for other in self.other_paths().iter().flatten() {
            other.path.set_event(PathEvent::Allowed);
            other.wake_worker();
        }
    }

    /// Makes the worker of the first path look at the negotiation.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn check_paths(self: &Arc<Self>) {
        let first = self.first.as_ref().unwrap_or(self);
        first.path.set_event(PathEvent::Negotiated);
        first.wake_worker();
    }

    /// Looks at the negotiation periodically, if there is one.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn check_paths_if_due(self: &Arc<Self>) {
        let is_due = self.path.rx.lock().negotiation.is_due(time::monotonic_ns());
        let is_due = is_due && !self.is_of_stranger();
        let set = self.paths.as_deref();
        let missing = set
            .filter(|set| !set.retires())
            .and_then(Paths::first_missing);
        if is_due || missing.is_some_and(|path| self.has_room_for_path(path)) {
            self.check_paths();
        }
        let Some(set) = set else {
            return;
        };
        if self.remote.has_full_port() && set.doubts_map() {
            self.request_map(set);
        }
    }

    /// Returns `true` if the path with this index exists, or there is room for it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn has_room_for_path(&self, path: u8) -> bool {
        let key = ConnKey { path, ..self.key };
        self.node.has_place(&key, self.creator)
    }

    /// Connects another path again, so that C RDS sends its congestion map.
    fn request_map(&self, set: &Paths) {
        let others = set.all();
        let linked = || others.iter().flatten().filter(|it| it.path.is_linked());
        let idle = linked().find(|it| !it.path.is_pending());
        let Some(path) = idle.or_else(|| linked().next()) else {
            // The peer sends the map once a path is up.
            return;
        };
        set.note_map_request();
        self.node.stats.inc(Counter::CongUpdateRequested);
        path.path.set_event(PathEvent::MapWanted);
        path.wake_worker();
    }

    /// Publishes what was negotiated, and probes the peer if that is due. The worker of the first
    /// path calls this.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn update_paths(self: &Arc<Self>) {
        match &self.paths {
            Some(set) => self.update_set(set),
            None => self.end_restart_alone(),
        }
        // A probe would count as a message, which a stranger has to send first.
        if self.is_of_stranger() {
            return;
        }
        let probes = self.path.rx.lock().negotiation.check(time::monotonic_ns());
        if probes {
            self.send_path_probe();
        }
    }

    /// Publishes what was negotiated.
    fn update_set(self: &Arc<Self>, set: &Paths) {
        let rx = self.path.rx.lock();
        let (outcome, restart) = (rx.negotiation.outcome(), rx.negotiation.restart());
        let is_rds_rust = rx.peer_is_rds_rust();
        let has_begun = rx.negotiation.has_begun();
        if has_begun {
            set.note_peer(is_rds_rust);
        }
        drop(rx);
        // Before the first handshake on a link it is the same peer as before.
        let is_rds_rust = set.peer_is_rds_rust();
        if let Some(kept) = restart {
            self.node.forget_positions_of_paths(&self.key);
            for path in set.begin_moves(kept).iter().flatten() {
                path.path.set_event(PathEvent::Restarted);
                path.wake_worker();
            }
            // Until now no path that has to move is connected, accepted or leaves a position.
            self.path.rx.lock().negotiation.end_restart();
        }
        // The last path that has moved its messages calls this again.
        if let Some(outcome) = outcome.filter(|_| !set.is_moving()) {
            let needed = outcome.wanted.max(outcome.paths);
            let ready = self.add_paths(needed);
            set.note_needed(needed, has_begun);
            if !is_rds_rust {
                self.connect_others(outcome.paths);
            }
            let usable = (ready >= outcome.paths).then_some(outcome.paths);
            set.publish(usable.unwrap_or_default());
            // What has arrived on the others may come again on the first one, after a smaller
            // number. So the peer gets none as long as they have positions.
            if ready == needed || !self.node.has_positions_of_paths(&self.key) {
                let mut rx = self.path.rx.lock();
                rx.negotiation.set_ready(outcome.wanted, ready);
            }
        }
        self.allow_others();
    }

    /// Handles a restart of the peer if this node uses one path. Positions of other paths may be
    /// left from an earlier setting.
    fn end_restart_alone(&self) {
        if self.path.rx.lock().negotiation.restart().is_some() {
            self.node.forget_positions_of_paths(&self.key);
            self.path.rx.lock().negotiation.end_restart();
        }
    }

    /// Returns `true` if this path has to move its messages, because the peer has restarted.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn has_to_move(&self) -> bool {
        let Some(first) = &self.first else {
            return false;
        };
        let will_move = first.path.rx.lock().negotiation.will_move(self.key.path);
        will_move || self.set().is_some_and(|set| set.moves(self.key.path))
    }

    /// Adds the other paths, as far as there is memory and room. Returns how many there are.
    fn add_paths(self: &Arc<Self>, count: PathCount) -> PathCount {
        let missing = (1..count.number()).find(|path| {
            // CAST: there are at most eight.
            let path = *path as u8;
            self.node.path(self, path).is_err()
        });
        missing.map_or(count, PathCount::at_most)
    }

    /// Connects the other paths to C RDS, which relies on the node with the lower address.
    fn connect_others(&self, count: PathCount) {
        if !self.is_lower() {
            return;
        }
        let others = self.other_paths();
        let used = others.iter().flatten().filter(|it| count.has(it.key.path));
        used.for_each(|other| {
            other.want_for_peer();
        });
    }

    /// Sends a probe for the number of paths. Another one is due later if there is no memory.
    fn send_path_probe(self: &Arc<Self>) {
        let probe = Message::empty(self.pools(), PROBE_PORT, PING_PORT);
        if probe.is_ok_and(|probe| self.send(probe).is_ok()) {
            self.node.stats.inc(Counter::SendProbe);
        }
    }

    /// Moves all messages to the first path, because the peer has restarted: it knows no numbers of
    /// this path. Those without an acknowledgement are the first ones. There is no link.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn move_to_first(&self) {
        let (Some(first), Some(set)) = (&self.first, self.set()) else {
            return;
        };
        let path = self.key.path;
        while self.drop_acked() {}
        let searches = self.path.cancel_lock.lock();
        loop {
            let mut tx = self.path.tx.lock();
            tx.keepalive_sequence = None;
            let (queue, mut messages) = (&mut tx.queue, Fifo::new());
            for _ in 0..BATCH {
                let next = queue.sent.pop_front();
                let Some(message) = next.or_else(|| queue.unsent.pop_front()) else {
                    break;
                };
                messages.push_back(message);
            }
            if messages.is_empty() {
                // A sender may have left one in the inbox meanwhile.
                if self.path.tx.end(&tx, || set.close(path)) {
                    break;
                }
                continue;
            }
            drop(tx);
            first.take_messages(messages);
        }
        drop(searches);
        // A sweep of this path finds no messages of sockets that were closed meanwhile.
        first.sweep_later();
        self.path.rx.lock().note_restart();
        // The peer before has needed this path.
        self.path.peer_may_wait.store(false, Relaxed);
        set.end_move(path);
        first.check_paths();
    }

    /// Makes this path count as one that has to move messages, and does not wake its worker.
    #[cfg(rds_kunit)]
    pub(crate) fn begin_move(&self) {
        if let Some(set) = self.set() {
            set.begin_move(self.key.path);
        }
    }

    /// Returns `true` if the other paths may be forgotten, of which this is the first one.
    #[cfg(rds_kunit)]
    pub(crate) fn others_retire(&self) -> bool {
        self.paths.as_ref().is_some_and(|set| set.retires())
    }

    /// Queues messages that another path has queued before.
    fn take_messages(self: &Arc<Self>, mut messages: Fifo<Message>) {
        let (mut dropped, mut count) = (Fifo::new(), 0usize);
        let mut tx = self.path.tx.lock();
        while let Some(mut message) = messages.pop_front() {
            if message.is_for_one_link() {
                dropped.push_back(message);
                continue;
            }
            // None of it has reached the peer that runs now.
            message.fragment = 0;
            tx.queue.push(message);
            count = count.saturating_add(1);
        }
        let up = tx.link.is_some();
        self.transmit_and_unlock(tx);
        drop(dropped);
        self.node.stats.add(Counter::SendMoved, count);
        if !up {
            self.want();
        }
    }
}
