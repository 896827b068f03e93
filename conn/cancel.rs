// SPDX-License-Identifier: GPL-2.0

//! Messages that are taken out of a connection's queues before the peer has got them.

use super::{
    info::{Outbox, BATCH},
    Connection, Counter,
};
use crate::kapi::{
    net::Sock,
    sync::{Fifo, Walk},
};
use crate::msg::{Message, Socket};
use core::cell::Cell;

impl Connection {
    /// Forgets the messages of a socket that is being closed, or only those to a port. Process context.
    pub(crate) fn cancel(&self, sk: &Sock<Socket>, port: Option<u16>) {
        let counter = match port {
            Some(_) => Counter::SendDropCancelled,
            None => Counter::SendDropClosed,
        };
        let ticket = Cell::new(None);
        let done = self.take_out(
            |outbox, message| {
                if !message.is_from(sk) || port.is_some_and(|port| message.dport != port) {
                    return false;
                }
                if outbox == Outbox::Unsent && message.is_half_out() {
                    // It has to be completed: the peer waits for the rest. There is one such message at a time.
                    message.cancelled = true;
                    ticket.set(message.take_ticket());
                    return false;
                }
                true
            },
            || self.note_drop(counter, ticket.take().map_or(0, |_| 1)),
        );
        done.iter().for_each(Message::cancel);
        self.note_drop(counter, done.len());
    }

    /// Takes the messages out of the queues for which `pred` holds. There may be millions, of many sockets, so it looks
    /// at some at a time, and calls `between` without the lock after that. Process context.
    fn take_out(
        &self,
        pred: impl Fn(Outbox, &mut Message) -> bool,
        between: impl Fn(),
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
                    more = queue.extract_some(&mut walk, BATCH, |it| pred(outbox, it), &mut done);
                    drop(tx);
                    between();
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
        let done = self.take_out(|_, message| message.has_lost_operation(), || {});
        self.note_drop(Counter::SendDropOperation, done.len());
    }
}
