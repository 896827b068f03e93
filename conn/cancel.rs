// SPDX-License-Identifier: GPL-2.0

//! Removes messages from a connection's queues before the peer has acknowledged them.
//!
//! # Operation
//!
//! A program cancels its messages to one port, or closes their socket. Messages that must not be
//! repeated are lost with their queue pair. A walk handles the queues a batch at a time, and holds
//! `Path::tx` for one batch only. `cancel_lock` permits one walk per connection. Closing a socket
//! does not wait for that lock: a sweep in the work queue does the rest.
//!
//! # Ownership
//!
//! The queues own the messages. A removed message is moved to a list of the caller, which drops it
//! without the lock. That releases the charge of its sender and its handles of buffers. A queue
//! pair to which a buffer is posted has a handle of its own. A message that is partially sent stays
//! in the queue, because the peer waits for the rest. It only gives up its charge.
//!
//! # Errors
//!
//! Nothing here can fail. Messages of programs that are removed are counted. Their operations end,
//! so the programs are notified.

use super::{
    path::{
        Path,
        PathEvent, //
    },
    tx_queue::{
        QueueKind,
        BATCH, //
    },
    Connection, //
};
use crate::{
    kapi::{
        net::Sock,
        sync::{
            Fifo,
            Pick,
            Walk, //
        },
        task::without_io, //
    },
    msg::Message,
    socket::{
        SndbufCharge,
        Socket, //
    },
    stats::Counter, //
};
use core::cell::Cell;
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Connection { self.sweep }
}

impl WorkItem<2> for Connection {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.sweep();
        });
    }
}

/// Number of other sockets' messages that closing a socket may pass before it gives up. The rest is
/// left to [`Connection::sweep`]. It is small, so closing costs little more than for a socket that
/// has sent nothing.
const AT_CLOSE: usize = 2;
/// Delay of the sweep, in milliseconds. It lets one sweep serve all sockets of a process that
/// exits.
const SWEEP_MS: u32 = 10;

impl Connection {
    /// Cancels the messages of a socket that is being closed and was bound to port `sport`.
    ///
    /// The cost does not depend on the messages of other sockets. There may be millions of those,
    /// and as many sockets that are closed. If the walk is too long, one later sweep handles all
    /// sockets closed by then.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn cancel_closed(self: &Arc<Self>, sk: &Sock<Socket>, sport: u16) {
        let Some(_taking) = self.path.cancel_lock.try_lock() else {
            return self.sweep_later();
        };
        if !self.cancel_of(sk, sport, None, AT_CLOSE) {
            self.sweep_later();
        }
    }

    /// Schedules a sweep that also cancels the messages of closed sockets.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn sweep_later(self: &Arc<Self>) {
        self.path.set_event(PathEvent::Closed);
        self.sweep_in(SWEEP_MS);
    }

    /// Schedules an immediate sweep that drops acknowledged messages and wakes senders.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn sweep_at_once(self: &Arc<Self>) {
        self.sweep_in(0);
    }

    fn sweep_in(self: &Arc<Self>, delay_ms: u32) {
        // The code that ends the connection sets the event first and then stops the timer. The
        // queues are empty then.
        let tx = self.path.tx.lock();
        if !self.has_ended() {
            let queue = &self.node.queue;
            queue.arm_unless_set::<_, 2>(self.clone(), delay_ms);
        }
        drop(tx);
    }

    /// Cancels all messages that a socket bound to port `sport` has sent to port `port`.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn cancel(&self, sk: &Sock<Socket>, sport: u16, port: u16) {
        // Acknowledged messages have arrived, so they are not cancelled.
        while self.drop_acked() {}
        let _taking = self.path.cancel_lock.lock();
        self.cancel_of(sk, sport, Some(port), usize::MAX);
    }

    /// Cancels messages of a socket that is bound to port `sport`. Cancels all if `port` is `None`
    /// (the socket is being closed), otherwise only those to `port`.
    ///
    /// Returns `false` if the walk gave up after more than `most` messages of other sockets.
    ///
    /// `TxQueue::last_of` shows at once if the socket has no message here, unless a port in the
    /// same bucket has some. Otherwise the walk ends behind the last message of the bucket, or when
    /// all messages were found.
    fn cancel_of(&self, sk: &Sock<Socket>, sport: u16, port: Option<u16>, most: usize) -> bool {
        let Some(last) = self.path.tx.lock().queue.last_of(sport) else {
            return true;
        };
        let counter = match port {
            Some(_) => Counter::SendDropCancelled,
            None => Counter::SendDropClosed,
        };
        // Bytes charged to the socket for the removed messages. If nothing else is charged, no
        // message of the socket is left in any queue.
        let charged = Cell::new(0usize);
        let is_all = || charged.get() == sk.unacknowledged();
        let others = Cell::new(0usize);
        let gives_up = || others.get() > most;
        let done = self.drop_unwanted(
            counter,
            |queue_kind, message, charge| {
                if message.sequence > last || is_all() {
                    return Pick::End;
                }
                if !message.is_from(sk) {
                    others.set(others.get().saturating_add(1));
                    return match gives_up() {
                        true => Pick::End,
                        false => Pick::Leave,
                    };
                }
                if port.is_some_and(|port| message.dport != port) {
                    return Pick::Leave;
                }
                let pick = give_up(queue_kind, message, charge);
                if pick == Pick::Take {
                    charged.set(charged.get().saturating_add(message.charge()));
                }
                pick
            },
            || !is_all() && !gives_up(),
        );
        let all = is_all() || !gives_up();
        // The socket is charged for them until here.
        drop(done);
        all
    }

    /// Wakes the remaining senders to ports that have room again, drops acknowledged messages, and
    /// cancels the messages of all closed sockets.
    ///
    /// The search for the latter passes all messages, of which there may be millions. So it happens
    /// only after a close that has left some. A peer chooses how often the rest is due.
    ///
    /// # Context
    ///
    /// Process context.
    fn sweep(&self) {
        self.waiters.wake_rest();
        while self.drop_acked() {}
        if !self.path.take_event(PathEvent::Closed) {
            return;
        }
        let _taking = self.path.cancel_lock.lock();
        self.drop_unwanted(
            Counter::SendDropClosed,
            |queue_kind, message, charge| match message.is_from_closed() {
                true => give_up(queue_kind, message, charge),
                false => Pick::Leave,
            },
            || true,
        );
    }

    /// Keeps searches of the queues waiting until the result is dropped.
    ///
    /// # Context
    ///
    /// May sleep.
    #[cfg(rds_kunit)]
    pub(crate) fn hold_searches(&self) -> impl Drop + '_ {
        self.path.cancel_lock.lock()
    }

    /// Removes, counts and returns messages that their senders no longer want. [`give_up`] has the
    /// arguments of `pick`; [`Path::take_out`] has the rest.
    fn drop_unwanted(
        &self,
        counter: Counter,
        pick: impl Fn(QueueKind, &mut Message, &Cell<Option<SndbufCharge>>) -> Pick,
        go_on: impl Fn() -> bool,
    ) -> Fifo<Message> {
        let charge = Cell::new(None);
        let done = self.path.take_out(
            |queue_kind, message| pick(queue_kind, message, &charge),
            || {
                self.note_drop(counter, charge.take().map_or(0, |_| 1));
                go_on()
            },
        );
        done.iter().for_each(Message::cancel);
        self.note_drop(counter, done.len());
        done
    }

    /// Drops what is queued without a socket: answers to pings. The caller ensures that no socket
    /// uses the connection, and that it has no link.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn drop_answers(&self) {
        let _taking = self.path.cancel_lock.lock();
        let done = self.path.take_out(|_, _| Pick::Take, || true);
        let answers = done.iter().filter(|message| !message.is_for_one_link());
        self.note_drop(Counter::SendPongDropped, answers.count());
    }

    /// Drops the messages that are lost with a queue pair. They are those that were meant for that
    /// link only, and those with an operation of unknown outcome. The latter must not arrive
    /// without the result of their operation, and their senders are notified.
    ///
    /// Operations that would most likely be refused go as well, see `FaultLimiter::ends`.
    /// `work_request()` ends those that are queued later, and those of sockets whose operations
    /// are refused on another connection.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn drop_lost(&self) {
        let mut tx = self.path.tx.lock();
        let times_up = tx.times_up;
        let nothing_new = core::mem::replace(&mut tx.times_searched, times_up) == times_up;
        drop(tx);
        if nothing_new {
            return;
        }
        // Acknowledged messages have arrived, so they are not lost.
        while self.drop_acked() {}
        let _taking = self.path.cancel_lock.lock();
        let has_ended = |message: &Message| {
            let operation = message.ops.operation.as_deref();
            message.has_lost_operation() || operation.is_some_and(|it| self.fault_limiter.ends(it))
        };
        let lost = Cell::new(0usize);
        let pick = |queue_kind, message: &mut Message| {
            let has_ended = has_ended(message);
            let was_out = queue_kind == QueueKind::Sent && message.is_for_one_link();
            if !has_ended && !was_out {
                return Pick::Leave;
            }
            lost.set(lost.get().wrapping_add(usize::from(has_ended)));
            Pick::Take
        };
        drop(self.path.take_out(pick, || true));
        self.note_drop(Counter::SendDropOperation, lost.get());
    }
}

impl Path {
    /// Removes the messages that `pick` selects from the queues. `Pick::End` ends the walk over one
    /// queue.
    ///
    /// There may be millions of messages from many sockets, so the walk takes a batch at a time.
    /// After each batch it drops the lock and calls `between`; it stops when that returns `false`.
    ///
    /// # Context
    ///
    /// Process context, with `cancel_lock` held. Removing elements makes all other walks begin
    /// again.
    fn take_out(
        &self,
        pick: impl Fn(QueueKind, &mut Message) -> Pick,
        between: impl Fn() -> bool,
    ) -> Fifo<Message> {
        let mut done = Fifo::new();
        let mut times_up = self.tx.lock().times_up;
        loop {
            // Messages move from unsent to sent meanwhile, and back when the connection comes up.
            for queue_kind in [QueueKind::Unsent, QueueKind::Sent] {
                let mut walk = Walk::new();
                let mut more = true;
                while more {
                    let mut tx = self.tx.lock();
                    let queue = tx.queue.queue_kind(queue_kind);
                    more =
                        queue.extract_some(&mut walk, BATCH, |it| pick(queue_kind, it), &mut done);
                    drop(tx);
                    if !between() {
                        return done;
                    }
                }
            }
            let now = self.tx.lock().times_up;
            if now == core::mem::replace(&mut times_up, now) {
                return done;
            }
        }
    }
}

/// Decides what happens to a message that its sender no longer wants. It is removed, unless it is
/// partially sent: the peer waits for the rest, so it must be completed.
///
/// In that case `charge` receives the sender's charge, which the caller drops without the lock. At
/// most one message is partially sent at a time.
fn give_up(
    queue_kind: QueueKind,
    message: &mut Message,
    charge: &Cell<Option<SndbufCharge>>,
) -> Pick {
    if queue_kind == QueueKind::Unsent && message.is_partially_sent() {
        message.cancelled = true;
        charge.set(message.take_charge());
        return Pick::Leave;
    }
    Pick::Take
}
