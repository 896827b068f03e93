// SPDX-License-Identifier: GPL-2.0

//! Messages that are taken out of a connection's queues before the peer has got them.

use super::{
    info::{QueueKind, BATCH},
    Connection, Counter,
};
use crate::kapi::{
    net::Sock,
    sync::{Fifo, Pick, Walk},
    task::without_io,
};
use crate::msg::{Message, SndbufCharge, Socket};
use core::cell::Cell;
use kernel::{sync::Arc, workqueue::WorkItem};

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

/// So many messages of others are looked at as a socket is closed, and one more: what is behind them is left to
/// [`Connection::sweep`]. Few, so that a close costs little more than that of a socket that has sent nothing.
const AT_CLOSE: usize = 2;
/// When that comes, in milliseconds, so that it is for all sockets of a process that ends.
const SWEEP_MS: u32 = 10;

impl Connection {
    /// Forgets the messages of a socket that is being closed and was bound to port `sport`. Process context.
    ///
    /// What that takes does not depend on what others have in the queues: there may be millions, and as many sockets
    /// that are closed. So somebody else goes through them, once for all that were closed until then.
    pub(crate) fn cancel_closed(self: &Arc<Self>, sk: &Sock<Socket>, sport: u16) {
        let Some(_taking) = self.cancel_lock.try_lock() else {
            return self.sweep_later();
        };
        if !self.cancel_of(sk, sport, None, AT_CLOSE) {
            self.sweep_later();
        }
    }

    /// Has the messages of closed sockets forgotten. Process context.
    fn sweep_later(self: &Arc<Self>) {
        self.sweep_in(SWEEP_MS);
    }

    /// Has what is acknowledged dropped. Any context but a hard interrupt.
    pub(super) fn sweep_at_once(self: &Arc<Self>) {
        self.sweep_in(0);
    }

    fn sweep_in(self: &Arc<Self>, delay_ms: u32) {
        // Whoever ends the connection stops the timer after that, and there is nothing in the queues then.
        let tx = self.tx.lock();
        if !self.has_ended() {
            let queue = &self.node.queue;
            queue.arm_unless_set::<_, 2>(self.clone(), delay_ms);
        }
        drop(tx);
    }

    /// Forgets what a socket that is bound to port `sport` has sent to a port. Process context.
    pub(crate) fn cancel(&self, sk: &Sock<Socket>, sport: u16, port: u16) {
        // What has arrived is not cancelled.
        while self.drop_acked() {}
        let _taking = self.cancel_lock.lock();
        self.cancel_of(sk, sport, Some(port), usize::MAX);
    }

    /// Forgets the messages of a socket that is bound to port `sport`: all if it is being closed, or only those to
    /// a port. Returns false if it has come across more than `most` messages of others, and given up.
    ///
    /// If it has none here that is known at once, unless a port that shares its place has some (`TxQueue::last_of`).
    /// If it has, no message is looked at behind the last one of this place, nor after all were found.
    fn cancel_of(&self, sk: &Sock<Socket>, sport: u16, port: Option<u16>, most: usize) -> bool {
        let Some(last) = self.tx.lock().queue.last_of(sport) else {
            return true;
        };
        let counter = match port {
            Some(_) => Counter::SendDropCancelled,
            None => Counter::SendDropClosed,
        };
        // What the socket pays for the messages that are out of the queues. If it pays for nothing else there is none
        // left anywhere.
        let paid = Cell::new(0usize);
        let is_all = || paid.get() == sk.unacknowledged();
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
                    paid.set(paid.get().saturating_add(message.charge()));
                }
                pick
            },
            || !is_all() && !gives_up(),
        );
        let all = is_all() || !gives_up();
        // Until here the socket pays for them.
        drop(done);
        all
    }

    /// Drops what is acknowledged, and forgets the messages of all sockets that are closed. Process
    /// context.
    fn sweep(&self) {
        while self.drop_acked() {}
        let _taking = self.cancel_lock.lock();
        self.drop_unwanted(
            Counter::SendDropClosed,
            |queue_kind, message, charge| match message.is_from_closed() {
                true => give_up(queue_kind, message, charge),
                false => Pick::Leave,
            },
            || true,
        );
    }

    /// Takes messages out that their senders do not want any more, counts them, and returns them. See [`give_up`] for
    /// what `pick` gets, and [`Self::take_out`] for all else.
    fn drop_unwanted(
        &self,
        counter: Counter,
        pick: impl Fn(QueueKind, &mut Message, &Cell<Option<SndbufCharge>>) -> Pick,
        go_on: impl Fn() -> bool,
    ) -> Fifo<Message> {
        let charge = Cell::new(None);
        let done = self.take_out(
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

    /// Takes the messages that `pick` wants out of the queues. There may be millions, of many sockets, so it looks
    /// at some at a time, and calls `between` without the lock after that, which returns false if that was all.
    /// What `pick` ends is the walk over one queue. Process context, with `cancel_lock` locked: who takes elements has all
    /// others begin again.
    fn take_out(
        &self,
        pick: impl Fn(QueueKind, &mut Message) -> Pick,
        between: impl Fn() -> bool,
    ) -> Fifo<Message> {
        let mut done = Fifo::new();
        let mut times_up = self.tx.lock().times_up;
        loop {
            // Messages go this way meanwhile, and the other way when the connection comes up.
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

    /// Drops what is lost with a queue pair: the messages that were for it alone, and those whose
    /// operations it may have done or not. The latter must not arrive without what the operations
    /// were to bring, and who sent them is told. Process context.
    pub(super) fn drop_lost(&self) {
        let mut tx = self.tx.lock();
        let times_up = tx.times_up;
        let nothing_new = core::mem::replace(&mut tx.times_searched, times_up) == times_up;
        drop(tx);
        if nothing_new {
            return;
        }
        // What has arrived is not lost.
        while self.drop_acked() {}
        let _taking = self.cancel_lock.lock();
        let pick = |queue_kind, message: &mut Message| {
            let was_out = queue_kind == QueueKind::Sent && message.is_for_one_link();
            match was_out || message.has_lost_operation() {
                true => Pick::Take,
                false => Pick::Leave,
            }
        };
        let done = self.take_out(pick, || true);
        let lost = done.iter().filter(|it| it.has_lost_operation()).count();
        self.note_drop(Counter::SendDropOperation, lost);
    }
}

/// What becomes of a message that its sender does not want any more. It goes, but if it is half out: then it has to be
/// completed, as the peer waits for the rest, and `charge` gets what it has of its sender, to be dropped without the
/// lock. There is one such message at a time.
fn give_up(
    queue_kind: QueueKind,
    message: &mut Message,
    charge: &Cell<Option<SndbufCharge>>,
) -> Pick {
    if queue_kind == QueueKind::Unsent && message.is_partially_sent() {
        message.cancelled = true;
        charge.set(message.take_ticket());
        return Pick::Leave;
    }
    Pick::Take
}
