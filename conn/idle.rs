// SPDX-License-Identifier: GPL-2.0

//! Looks at all connections every now and then: those that are idle are closed, and those that nobody
//! needs are forgotten. `proto::idle` says which.
//!
//! Whoever holds a connection may still have it when it is forgotten. Such a one has ended: it takes no
//! message and no request any more, so there are never two that count messages between the same
//! addresses. The sender looks for the connection again, and makes a new one.

use super::{connection::Tx, receive::RecvSide, Connection, Counter, Node};
use crate::kapi::{
    sync::{cancel, cancel_delayed, Peek},
    time,
};
use crate::proto::{
    connect::State,
    idle::{Marks, Sight, Verdict},
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

impl WorkItem<0> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Ok(()) = this.try_for_each::<Infallible>(|connection| {
            this.look(connection);
            Ok(())
        });
        this.look_later();
    }
}

impl Node {
    /// Sees to it that somebody looks at the connections, as long as there are any. Any context but a
    /// hard interrupt.
    pub(super) fn look_later(self: &Arc<Self>) {
        let connections = self.connections.lock();
        let needed = !connections.closed && connections.tree.len() > 0;
        drop(connections);
        if needed {
            let period_ms = self.patience.period_ms();
            self.queue.arm_unless_set::<_, 0>(self.clone(), period_ms);
            let period_ms = self.tunables.silence().period_ms();
            self.queue.arm_unless_set::<_, 1>(self.clone(), period_ms);
        }
    }

    fn look(&self, connection: &Arc<Connection>) {
        match connection.look() {
            Verdict::Keep => {}
            Verdict::Acknowledge => connection.send_header(),
            Verdict::Close => {
                connection.idle.store(true, Release);
                connection.wake_worker();
            }
            Verdict::Forget => self.forget(connection, false),
            Verdict::ForgetForRoom => self.forget(connection, true),
        }
    }

    /// Forgets a connection, unless something has happened to it; perhaps only if room is scarce.
    fn forget(&self, connection: &Arc<Connection>, for_room: bool) {
        // Whoever has it is about to do something with the connection.
        let Some(worker) = connection.worker.try_lock() else {
            return;
        };
        let mut connections = self.connections.lock();
        let tree = &mut connections.tree;
        // With the table locked, so that nobody finds one that has ended.
        let ended =
            worker.is_down() && (!for_room || tree.is_crowded(&connection.key)) && connection.end();
        let gone = if ended {
            tree.remove(&connection.key)
        } else {
            None
        };
        drop(connections);
        drop(worker);
        if gone.is_none() {
            return;
        }
        // Who waits looks for the connection that there is now.
        connection.waiters.wake_all();
        // No endpoint is left to set it going again.
        cancel_delayed::<_, 1>(connection);
        cancel::<_, 0>(connection);
        self.stats.inc(Counter::ConnForgotten);
        pr_debug!("{}: forgotten\n", connection.key);
    }
}

fn marks(tx: &Tx, rx: &RecvSide) -> Marks {
    Marks {
        next_tx: tx.queue.state.next_sequence(),
        next_rx: rx.next_sequence(),
        times_up: tx.times_up,
    }
}

impl Connection {
    fn look(&self) -> Verdict {
        let state = self.state.load(Relaxed);
        let mut tx = self.tx.lock();
        let rx = self.rx.lock();
        let sight = Sight {
            marks: marks(&tx, &rx),
            up: state == State::Up as u32,
            down: state == State::Down as u32,
            pending: tx.is_pending() || rx.has_partial(),
            ack_due: tx.queue.ack_due,
            unused: tx.queue.state.is_unused() && rx.is_unused(),
            like_us: rx.peer_is_like_us(),
        };
        drop(rx);
        let now = time::monotonic_ns();
        tx.idleness.look(&sight, now, self.node.patience)
    }

    /// Whether the connection has been forgotten, or the module is being unloaded: it takes no messages.
    /// Any context.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.peek()
    }

    /// Ends the connection, if nothing has happened since the last look. It is down, and its worker is
    /// kept away.
    fn end(&self) -> bool {
        let tx = self.tx.lock();
        let marks = marks(&tx, &self.rx.lock());
        // Whoever queues a message or a request sees the flag with one of the locks held.
        let request = self.request.lock();
        let unneeded = tx.idleness.is_about(&marks) && !tx.is_pending() && request.is_none();
        if unneeded {
            self.stop.store(true, Release);
        }
        unneeded
    }
}
