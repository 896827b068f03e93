// SPDX-License-Identifier: GPL-2.0

//! Periodic check of all connections: idle ones are closed, unneeded ones are forgotten.
//! `proto::idle` decides.
//!
//! References to a connection may remain after it is forgotten. It has ended then and takes no
//! messages or requests. So two connections never number messages between the same addresses at
//! once. A sender looks the connection up again and makes a new one.

use super::{
    node::NodeConnections,
    path::{
        Path,
        PathEvent,
        Tx, //
    },
    positions::PositionPlace,
    recv_side::RecvSide,
    Connection,
    Node, //
};
use crate::{
    kapi::{
        sync::{
            cancel,
            cancel_delayed, //
        },
        task::{
            without_io,
            UserId, //
        },
        time, //
    },
    proto::{
        connect::{
            Event,
            State, //
        },
        idle::{
            IdleDecision,
            IdleProgress,
            IdleSnapshot,
            IdleTimeouts, //
        },
        rx::Position, //
    },
    stats::Counter,
    trace, //
};
use core::convert::Infallible;
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Node { self.idle_work }
}

/// Maximum number of connections that one check of all closes to make room.
const MOST_CLOSED: u32 = 64;

/// Time limit for these closings in one check, in nanoseconds; the last one may exceed it. A device
/// that does not flush takes seconds for each. The other connections and module unload wait
/// meanwhile.
const LONGEST_CLOSING: u64 = 5_000_000_000;

impl WorkItem<0> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let until = time::monotonic_ns().saturating_add(LONGEST_CLOSING);
            let (mut closed, mut may_close) = (0u32, true);
            let Ok(()) = this.try_for_each::<Infallible>(|connection| {
                if this.check(connection, may_close) {
                    closed = closed.saturating_add(1);
                    may_close = closed < MOST_CLOSED && time::monotonic_ns() <= until;
                }
                Ok(())
            });
            this.arm_idle_work();
        });
    }
}

impl Node {
    /// Schedules the next check, as long as there are connections.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn arm_idle_work(self: &Arc<Self>) {
        let period_ms = self.idle_timeouts.period_ms();
        self.with_connections(|| self.queue.arm_unless_set::<_, 0>(self.clone(), period_ms));
    }

    /// Calls `arm`, which sets a timer of the node, as long as there are connections.
    ///
    /// The table is locked meanwhile. [`Node::stop`] closes it before it cancels the timers, so
    /// none is set after that, whatever workers still do.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn with_connections(&self, arm: impl FnOnce()) {
        let connections = self.connections.lock();
        if !connections.closed && connections.tree.len() > 0 {
            arm();
        }
    }

    /// Checks one connection, and closes it to make room only if `may_close`. Returns `true` if
    /// that was done.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn check(&self, connection: &Arc<Connection>, may_close: bool) -> bool {
        let decision = connection.path.check(self.idle_timeouts);
        match self.limit(connection, decision) {
            IdleDecision::Keep => {}
            IdleDecision::Acknowledge => connection.send_header(),
            IdleDecision::Close => {
                connection.path.set_event(PathEvent::Idle);
                connection.wake_worker();
            }
            IdleDecision::Forget => {
                self.forget(connection, When::Always);
            }
            _ if !self.is_near_limit(connection) => {}
            IdleDecision::ForgetForRoom => {
                self.forget(connection, When::NearLimit);
            }
            IdleDecision::EndForRoom if may_close => return self.forget(connection, When::Closed),
            IdleDecision::EndForRoom => {}
        }
        false
    }

    /// Changes a decision as far as the paths of a connection depend on each other. The first one
    /// is needed to connect the others, and is forgotten last.
    fn limit(&self, connection: &Arc<Connection>, decision: IdleDecision) -> IdleDecision {
        let forgets = matches!(
            decision,
            IdleDecision::Forget | IdleDecision::ForgetForRoom | IdleDecision::EndForRoom
        );
        match (&connection.first, &connection.paths) {
            (Some(first), _) if forgets => match first.paths.as_ref() {
                Some(set) if !set.retires() => IdleDecision::Keep,
                _ => decision,
            },
            // A peer that runs C RDS cannot ask for its other paths, even if they are missing now.
            (None, Some(set))
                if decision == IdleDecision::EndForRoom
                    && connection.is_lower()
                    && set.is_needed_by_c() =>
            {
                IdleDecision::Keep
            }
            (None, Some(set)) if !set.is_empty() => {
                if decision == IdleDecision::Close && connection.others_are_active() {
                    return IdleDecision::Keep;
                }
                if !forgets {
                    let has_room = || {
                        let missing = set.first_missing();
                        missing.is_none_or(|path| connection.has_room_for_path(path))
                    };
                    if set.retires() && has_room() {
                        // It is needed again.
                        connection.check_paths();
                    }
                    return decision;
                }
                if decision == IdleDecision::Forget || self.is_near_limit(connection) {
                    set.retire();
                }
                IdleDecision::Keep
            }
            _ => decision,
        }
    }

    fn is_near_limit(&self, connection: &Connection) -> bool {
        let of_stranger = connection.is_of_stranger();
        let near_quota = connection.is_near_quota();
        let connections = self.connections.lock();
        near_quota || connections.is_near_limit(connection, of_stranger)
    }

    /// Forgets a connection, unless something has happened to it. Returns `true` if it was closed
    /// for that.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn forget(&self, connection: &Arc<Connection>, when: When) -> bool {
        // The current owner of the worker is about to change the connection.
        let Some(mut worker) = connection.path.worker.try_lock() else {
            return false;
        };
        let was_up = when == When::Closed && worker.is_up();
        let waited = when == When::NearLimit && worker.is_waiting();
        if was_up || waited {
            connection.handle(&mut worker, Event::Idle);
        }
        let closed = was_up && worker.is_down();
        let of_stranger = connection.is_of_stranger();
        let near_quota = connection.is_near_quota();
        let may_have_others = connection.is_stream() && connection.first.is_none();
        let place = match connection.path.leaves_position() || may_have_others {
            true => PositionPlace::new().ok(),
            false => None,
        };
        let mut is_needed = false;
        let mut connections = self.connections.lock();
        let now = &mut *connections;
        // The table is locked, so no lookup finds a connection that has ended.
        let may = worker.is_down()
            && connection.paths.as_ref().is_none_or(|set| set.is_empty())
            && (when == When::Always || near_quota || now.is_near_limit(connection, of_stranger));
        // A pending request may be the peer's reaction to the closing above, so it does not count
        // then. Over TCP it may have messages already, which the peer counts as delivered.
        let rejects = closed && !connection.is_stream();
        let can_keep = place.is_some() && now.positions.has_room(&connection.key);
        let must_keep = may_have_others && now.positions.has_others(&connection.key);
        let last = if may {
            connection.path.end(must_keep, can_keep, rejects)
        } else {
            None
        };
        let gone = last.and_then(|last| {
            now.begin_at = now.begin_at.max(last.next_tx);
            // A path that has to move has a position in the messages of the peer before.
            let position = last.position.filter(|_| !connection.has_to_move());
            if let Some((position, place)) = position.zip(place) {
                now.positions.insert(&connection.key, position, place);
            }
            if let Some(user) = connection.creator {
                if last.is_unanswered {
                    now.tree.note_answer(user);
                }
                now.tree.note_removed(&connection.key, user);
            }
            if let Some(charge) = &connection.quota_charge {
                charge.release();
            }
            if let Some(set) = connection.first().paths.as_ref() {
                // The first path waits for the last one that moves, or has just published this one.
                let is_other = connection.first.is_some();
                is_needed = set.remove(connection.key.path) || (is_other && !set.retires());
            }
            now.tree.remove(&connection.key)
        });
        drop(connections);
        drop(worker);
        if gone.is_none() {
            if (waited || closed) && connection.path.peer_may_wait.load(Relaxed) {
                connection.want();
            }
            if closed {
                // Events that came meanwhile have not woken the worker.
                connection.wake_worker();
            }
            return closed;
        }
        if waited && connection.path.peer_may_wait.load(Relaxed) {
            if let Some(transport) = self.transports.get(connection.key.transport) {
                transport.lose_request(&connection.key);
            }
        }
        if is_needed {
            connection.check_paths();
        }
        // The peer has to send the request again. C RDS does so as soon as a connection is closed.
        connection.reject_request();
        // The waiters look up the connection that exists now.
        connection.waiters.wake_all();
        // No endpoint is left that could arm them again. The first one may queue the worker.
        cancel::<_, 3>(connection);
        cancel_delayed::<_, 1>(connection);
        cancel_delayed::<_, 2>(connection);
        cancel::<_, 0>(connection);
        self.stats.inc(Counter::ConnGc);
        trace::conn_forgotten(&connection.key.traced());
        pr_debug!("{}: idle, removed\n", connection.key);
        closed
    }
}

/// Conditions for forgetting a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// The connection is down.
    Always,
    /// The connection is down, and room is scarce.
    NearLimit,
    /// Room is scarce. The connection is closed first if it is up.
    Closed,
}

/// State that outlives a forgotten connection.
struct Last {
    /// Sequence of the next message to send.
    next_tx: u64,
    position: Option<Position>,
    /// The peer has never answered.
    is_unanswered: bool,
}

fn marks(tx: &Tx, rx: &RecvSide, has_answered: bool) -> IdleProgress {
    let next_tx = tx.queue.state.next_sequence();
    IdleProgress::new(next_tx, rx.next_sequence(), tx.times_up, has_answered)
}

/// Returns `true` if no message was ever sent or received.
pub(super) fn is_unused(tx: &Tx, rx: &RecvSide) -> bool {
    tx.queue.state.is_unused() && rx.is_unused()
}

/// Returns `true` if the connection's position in the peer's sequence must be kept.
fn leaves_position(tx: &Tx, rx: &RecvSide) -> bool {
    !tx.idle_tracker.is_settled() && !rx.is_unused()
}

impl Connection {
    /// Returns `true` if the connection takes no more messages: it was forgotten, or the module
    /// or the network namespace ends.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.path.has_ended()
    }

    /// Returns `true` if unneeded connections should make room for those of other nodes.
    fn is_near_quota(&self) -> bool {
        self.quota_charge
            .as_ref()
            .is_some_and(|charge| charge.is_near_limit())
    }

    /// Returns `true` if peers over TCP together are charged for the connection, and no message of
    /// either side has passed.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_of_stranger(&self) -> bool {
        let first = self.first();
        first.creator == Some(UserId::PEERS) && !first.path.has_answered.load(Relaxed)
    }
}

impl NodeConnections {
    /// Returns `true` if unneeded connections like this one should make room.
    fn is_near_limit(&self, connection: &Connection, of_stranger: bool) -> bool {
        self.tree.is_near_limit(&connection.key, connection.creator)
            || (of_stranger && self.tree.has_many_strangers())
    }
}

impl Path {
    fn check(&self, idle_timeouts: IdleTimeouts) -> IdleDecision {
        let state = self.state.load(Relaxed);
        let activity = self.activity().unwrap_or_default();
        let has_answered = self.has_answered.load(Relaxed);
        let mut tx = self.tx.lock();
        let rx = self.rx.lock();
        let snapshot = IdleSnapshot {
            marks: marks(&tx, &rx, has_answered),
            up: state == State::Up as u32,
            down: state == State::Down as u32,
            // A stranger may leave a message incomplete for ever. C RDS sends all of it again.
            pending: tx.is_pending() || (has_answered && rx.has_partial()) || activity.operates,
            for_peer: state == State::Waiting as u32 && self.peer_may_wait.load(Relaxed),
            ack_due: tx.queue.ack_due,
            offers: activity.offers,
            unused: is_unused(&tx, &rx),
            is_rds_rust: rx.peer_is_rds_rust(),
        };
        drop(rx);
        let now = time::monotonic_ns();
        tx.idle_tracker.check(&snapshot, now, idle_timeouts)
    }

    /// Makes the peer count as one that has nothing to retransmit, until something arrives.
    #[cfg(rds_kunit)]
    pub(crate) fn set_settled(&self) {
        self.tx.lock().idle_tracker.set_settled();
    }

    /// Continues the sequence numbers of an earlier connection as far as necessary. Called with the
    /// table locked.
    pub(super) fn begin(&self, begin_at: u64, position: Option<Position>) {
        let mut tx = self.tx.lock();
        tx.queue.state.begin_at(begin_at);
        self.acked.store(begin_at.saturating_sub(1), Relaxed);
        if let Some(position) = position {
            self.rx.lock().resume(position);
        }
    }

    /// Locks the path and calls [`leaves_position`].
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn leaves_position(&self) -> bool {
        let tx = self.tx.lock();
        leaves_position(&tx, &self.rx.lock())
    }

    /// Ends the connection if nothing has happened since the last check. Returns `None` if
    /// something has, a connection is wanted, a position must be kept without `can_keep`, or a
    /// request is pending without `rejects`. `must_keep`: the position is kept in any case.
    ///
    /// The connection is down, and the caller holds the worker lock.
    fn end(&self, must_keep: bool, can_keep: bool, rejects: bool) -> Option<Last> {
        let tx = self.tx.lock();
        let rx = self.rx.lock();
        let has_answered = self.has_answered.load(Relaxed);
        let marks = marks(&tx, &rx, has_answered);
        let position = (must_keep || leaves_position(&tx, &rx)).then(|| rx.position());
        drop(rx);
        if !tx.idle_tracker.is_about(&marks) || tx.is_pending() || (position.is_some() && !can_keep)
        {
            return None;
        }
        // Code that queues a message or a request checks the event under one of these locks.
        let request = self.request.lock();
        if (request.is_some() && !rejects) || self.has_event(PathEvent::Wanted) {
            return None;
        }
        let ended = self.tx.end(&tx, || self.set_event(PathEvent::Stop));
        drop(request);
        ended.then_some(Last {
            next_tx: marks.next_tx,
            position,
            is_unanswered: !has_answered,
        })
    }
}
