// SPDX-License-Identifier: GPL-2.0

//! Messages that are taken out of a connection's queues before the peer has got them.

use super::{
    info::{Outbox, BATCH},
    Connection, Counter,
};
use crate::kapi::{
    net::Sock,
    sync::{Fifo, Pick, Walk},
};
use crate::msg::{Message, Socket};
use core::cell::Cell;

impl Connection {
    /// Forgets the messages of a socket that is bound to port `sport`: all if it is being closed, or only those to
    /// a port. Process context.
    ///
    /// If it has none here that is known at once, unless a port that shares its place has some (`TxQueue::last_of`).
    /// If it has, no message is looked at behind the last one of this place, nor after all were found.
    pub(crate) fn cancel(&self, sk: &Sock<Socket>, sport: u16, port: Option<u16>) {
        let Some(last) = self.tx.lock().queue.last_of(sport) else {
            return;
        };
        let counter = match port {
            Some(_) => Counter::SendDropCancelled,
            None => Counter::SendDropClosed,
        };
        let ticket = Cell::new(None);
        // What the socket pays for the messages that are out of the queues. If it pays for nothing else there is none
        // left anywhere.
        let paid = Cell::new(0usize);
        let is_all = || paid.get() == sk.unacknowledged();
        let done = self.take_out(
            |outbox, message| {
                if message.sequence > last || is_all() {
                    return Pick::End;
                }
                if !message.is_from(sk) || port.is_some_and(|port| message.dport != port) {
                    return Pick::Leave;
                }
                if outbox == Outbox::Unsent && message.is_half_out() {
                    // It has to be completed: the peer waits for the rest. There is one such message at a time.
                    message.cancelled = true;
                    ticket.set(message.take_ticket());
                    return Pick::Leave;
                }
                paid.set(paid.get().saturating_add(message.charge()));
                Pick::Take
            },
            || {
                self.note_drop(counter, ticket.take().map_or(0, |_| 1));
                !is_all()
            },
        );
        done.iter().for_each(Message::cancel);
        self.note_drop(counter, done.len());
    }

    /// Takes the messages that `pick` wants out of the queues. There may be millions, of many sockets, so it looks
    /// at some at a time, and calls `between` without the lock after that, which returns false if that was all.
    /// What `pick` ends is the walk over one queue. Process context.
    fn take_out(
        &self,
        pick: impl Fn(Outbox, &mut Message) -> Pick,
        between: impl Fn() -> bool,
    ) -> Fifo<Message> {
        let mut done = Fifo::new();
        let mut times_up = self.tx.lock().times_up;
        loop {
            // Messages go this way meanwhile, and the other way when the connection comes up.
            for outbox in [Outbox::Unsent, Outbox::Sent] {
                let mut walk = Walk::new();
                let mut more = true;
                while more {
                    let mut tx = self.tx.lock();
                    let queue = tx.queue.outbox(outbox);
                    more = queue.extract_some(&mut walk, BATCH, |it| pick(outbox, it), &mut done);
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

    /// The queue pair is gone: drops the messages whose operations it may have done or not. They must not arrive
    /// without what the operations were to bring, and who sent them is told. Process context.
    pub(super) fn drop_lost_operations(&self) {
        let pick = |_, message: &mut Message| match message.has_lost_operation() {
            true => Pick::Take,
            false => Pick::Leave,
        };
        let done = self.take_out(pick, || true);
        self.note_drop(Counter::SendDropOperation, done.len());
    }
}
