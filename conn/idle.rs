// SPDX-License-Identifier: GPL-2.0

//! Looks at all connections every now and then: those that are idle are closed, and those that nobody
//! needs are forgotten. `proto::idle` says which.
//!
//! Whoever holds a connection may still have it when it is forgotten. Such a one has ended: it takes no
//! message and no request any more, so there are never two that count messages between the same
//! addresses. The sender looks for the connection again, and makes a new one.

use super::{connection::Tx, receive::RecvSide, table::PositionPlace, Connection, Counter, Node};
use crate::kapi::{
    sync::{cancel, cancel_delayed, Peek},
    task::without_io,
    time, trace,
};
use crate::proto::{
    connect::{Event, State},
    idle::{IdleDecision, IdleProgress, IdleSnapshot},
    rx::Position,
};
use core::convert::Infallible;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Relaxed, Release},
        Arc,
    },
    workqueue::WorkItem,
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Node { self.looks }
}

/// How many connections are closed for room at the most from one look at all of them to the next.
const MOST_CLOSED: u32 = 64;

/// How long that may take, in nanoseconds, but for the last one: a device that does not flush takes seconds for each,
/// and the others wait for it, and so does who unloads the module.
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
            this.look_later();
        });
    }
}

impl Node {
    /// Sees to it that somebody looks at the connections, as long as there are any. Any context but a
    /// hard interrupt.
    ///
    /// Only for who adds a connection, and for the work itself: [`Node::stop`] stops one timer after the other,
    /// and no other work may set again what is stopped already.
    pub(super) fn look_later(self: &Arc<Self>) {
        if self.has_connections() {
            let period_ms = self.idle_timeouts.period_ms();
            self.queue.arm_unless_set::<_, 0>(self.clone(), period_ms);
        }
    }

    /// Whether there is anything to look at later. Any context but a hard interrupt.
    pub(super) fn has_connections(&self) -> bool {
        let connections = self.connections.lock();
        !connections.closed && connections.tree.len() > 0
    }

    /// `may_close`: it may be closed for room. Returns whether it was. Sleeps.
    fn check(&self, connection: &Arc<Connection>, may_close: bool) -> bool {
        match connection.check() {
            IdleDecision::Keep => {}
            IdleDecision::Acknowledge => connection.send_header(),
            IdleDecision::Close => {
                connection.idle.raise();
                connection.wake_worker();
            }
            IdleDecision::Forget => {
                self.forget(connection, When::Always);
            }
            _ if !self.is_crowded(connection) => {}
            IdleDecision::ForgetForRoom => {
                self.forget(connection, When::Crowded);
            }
            IdleDecision::EndForRoom if may_close => return self.forget(connection, When::Closed),
            IdleDecision::EndForRoom => {}
        }
        false
    }

    fn is_crowded(&self, connection: &Connection) -> bool {
        self.connections.lock().tree.is_crowded(&connection.key)
    }

    /// Forgets a connection, unless something has happened to it. Returns whether it was closed for that. Sleeps.
    fn forget(&self, connection: &Arc<Connection>, when: When) -> bool {
        // Whoever has it is about to do something with the connection.
        let Some(mut worker) = connection.worker.try_lock() else {
            return false;
        };
        let was_up = when == When::Closed && worker.is_up();
        if was_up {
            connection.handle(&mut worker, Event::Idle);
        }
        let closed = was_up && worker.is_down();
        let place = match connection.leaves_position() {
            true => PositionPlace::new().ok(),
            false => None,
        };
        let mut connections = self.connections.lock();
        let now = &mut *connections;
        // With the table locked, so that nobody finds one that has ended. The peer's request may be the answer to that
        // the connection was closed here.
        let may = worker.is_down()
            && (when == When::Always || now.tree.is_crowded(&connection.key))
            && (closed || connection.request.lock().is_none());
        let can_keep = place.is_some() && now.positions.has_room(&connection.key);
        let last = if may { connection.end(can_keep) } else { None };
        let gone = last.and_then(|last| {
            now.begin_at = now.begin_at.max(last.next_tx);
            if let Some((position, place)) = last.position.zip(place) {
                now.positions.insert(&connection.key, position, place);
            }
            if let Some(user) = connection.creator.filter(|_| last.unmet) {
                now.tree.meet(user);
            }
            now.tree.remove(&connection.key)
        });
        drop(connections);
        drop(worker);
        if gone.is_none() {
            if closed {
                // What came meanwhile has woken nobody.
                connection.wake_worker();
            }
            return closed;
        }
        // The peer has to make it again. C RDS asks again as soon as a connection is closed.
        connection.reject_request();
        // Who waits looks for the connection that there is now.
        connection.waiters.wake_all();
        // No endpoint is left to set it going again.
        cancel_delayed::<_, 1>(connection);
        cancel_delayed::<_, 2>(connection);
        cancel::<_, 0>(connection);
        self.stats.inc(Counter::ConnGc);
        trace::conn_state(&connection.key.traced(), "unused", "down", "forgotten");
        pr_debug!("{}: forgotten\n", connection.key);
        closed
    }
}

/// When a connection may be forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// It is down.
    Always,
    /// It is down, and room is scarce.
    Crowded,
    /// Room is scarce: it is closed, if it is up, and not taken up again.
    Closed,
}

/// What is left of a connection that is forgotten.
struct Last {
    /// The sequence of its next message.
    next_tx: u64,
    position: Option<Position>,
    /// It has never been up.
    unmet: bool,
}

fn marks(tx: &Tx, rx: &RecvSide) -> IdleProgress {
    IdleProgress {
        next_tx: tx.queue.state.next_sequence(),
        next_rx: rx.next_sequence(),
        times_up: tx.times_up,
    }
}

/// Whether the connection's place in the peer's numbers must not be forgotten.
fn leaves_position(tx: &Tx, rx: &RecvSide) -> bool {
    !tx.idle_tracker.is_settled() && !rx.is_unused()
}

impl Connection {
    fn check(&self) -> IdleDecision {
        let state = self.state.load(Relaxed);
        let activity = self.activity().unwrap_or_default();
        let mut tx = self.tx.lock();
        let rx = self.rx.lock();
        let snapshot = IdleSnapshot {
            marks: marks(&tx, &rx),
            up: state == State::Up as u32,
            down: state == State::Down as u32,
            pending: tx.is_pending() || rx.has_partial() || activity.operates,
            ack_due: tx.queue.ack_due,
            offers: activity.offers,
            unused: tx.queue.state.is_unused() && rx.is_unused(),
            like_us: rx.peer_is_like_us(),
        };
        drop(rx);
        let now = time::monotonic_ns();
        tx.idle_tracker
            .check(&snapshot, now, self.node.idle_timeouts)
    }

    /// Whether the connection has been forgotten, or the module is being unloaded: it takes no messages.
    /// Any context.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.peek()
    }

    /// A new connection goes on where the one before it was, as far as that is needed. With the table locked.
    pub(super) fn begin(&self, begin_at: u64, position: Option<Position>) {
        let mut tx = self.tx.lock();
        tx.queue.state.begin_at(begin_at);
        self.acked.store(begin_at.saturating_sub(1), Relaxed);
        if let Some(position) = position {
            self.rx.lock().resume(position);
        }
    }

    /// See the function of that name. Any context but a hard interrupt.
    fn leaves_position(&self) -> bool {
        let tx = self.tx.lock();
        leaves_position(&tx, &self.rx.lock())
    }

    /// Ends the connection, if nothing has happened since the last look, and if what must not be forgotten can be kept.
    /// It is down, and its worker is kept away.
    fn end(&self, can_keep: bool) -> Option<Last> {
        let tx = self.tx.lock();
        let rx = self.rx.lock();
        let marks = marks(&tx, &rx);
        let position = leaves_position(&tx, &rx).then(|| rx.position());
        drop(rx);
        if !tx.idle_tracker.is_about(&marks) || tx.is_pending() || (position.is_some() && !can_keep)
        {
            return None;
        }
        // Whoever queues a message or a request sees the flag with one of the locks held.
        let request = self.request.lock();
        self.stop.store(true, Release);
        drop(request);
        Some(Last {
            next_tx: marks.next_tx,
            position,
            unmet: tx.times_up == 0,
        })
    }
}
