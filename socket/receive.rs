// SPDX-License-Identifier: GPL-2.0

//! Delivery of messages to a socket, their reading, and the congestion of its port.
//!
//! A delivered message belongs to the receive queue. A reader takes it out without a lock held, and
//! puts it back if it cannot be copied to the program. Messages that a closed socket still has are
//! dropped and counted.

use super::{
    recv_queue::{
        RecvQueue,
        UnreadInfo, //
    },
    Incoming,
    Keep,
    Socket,
    Traces,
    TransportId,
    UpperNode, //
};
use crate::{
    kapi::{
        net::{
            poll,
            Sock, //
        },
        sync::{
            Fifo,
            Item, //
        }, //
    },
    proto::rcvbuf::{
        is_overrun,
        tight_limit,
        transition,
        Transition, //
    },
    stats::Counter,
    trace::{
        self,
        TracedMsg, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

impl Sock<Socket> {
    /// Sets the timestamps of the receive path that the program requests.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn set_traces(&self, traces: Traces) {
        let mut control = self.control.lock();
        let before = core::mem::replace(&mut control.traces, traces);
        self.node.note_tracing(before.is_empty(), traces.is_empty());
    }

    /// Queues a message to be read.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
    pub(crate) fn deliver(&self, mut message: Item<Incoming>) {
        let buffer = self.recv_buffer();
        if buffer.stamps || message.is_timed() {
            message.note_delivery();
        }
        let cost = message.cost();
        let stats = &self.node.stats;
        let mut recv = self.recv.lock();
        if recv.closed {
            drop(recv);
            stats.inc(Counter::RecvDropDeadSock);
            if let Some(bound) = self.bound() {
                let conn = trace::Conn::new(bound.addr, message.saddr, message.tos);
                trace::dropped(&conn, Counter::RecvDropDeadSock, 1);
            }
            drop(message);
            return;
        }
        self.charge(&mut recv, &message, cost);
        trace::msg_delivered(|| self.traced(&message));
        recv.messages.push_back(message);
        recv.bytes = recv.bytes.saturating_add(cost);
        let cong_notify = match recv.congested {
            // Only a reader clears the mark, because that may wake any number of senders.
            true => {
                self.update_overrun(&recv, buffer.bytes);
                Transition::None
            }
            false => self.update_congested(&mut recv, buffer.bytes),
        };
        self.reader_lock.note_readable(true);
        drop(recv);
        stats.count(Counter::RecvQueued, Counter::RecvBytesAdded, cost);
        self.wake_readers(poll::IN);
        self.announce(cong_notify, false);
    }

    /// Calls `read` for the oldest message, if there is one and no other reader is active. The
    /// message is then dropped, unless `read` fails or `keep` says that the reader only peeks.
    ///
    /// # Errors
    ///
    /// - Any error of `read`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn read_message<R>(
        &self,
        keep: Keep,
        read: impl FnOnce(&Incoming) -> Result<R>,
    ) -> Result<Option<R>> {
        let Some(reading) = Reading::begin(self) else {
            return Ok(None);
        };
        let mut recv = self.recv.lock();
        let Some(message) = recv.messages.pop_front() else {
            return Ok(None);
        };
        let mut cost = 0;
        let mut cong_notify = Transition::None;
        if keep == Keep::Yes {
            recv.peeked = Some(UnreadInfo::of(&message));
        } else {
            cost = message.cost();
            recv.bytes = recv.bytes.saturating_sub(cost);
            self.uncharge(&mut recv, &message, cost);
            // Removing a message does not make a queue congested. The queue may be overrun without
            // being congested, if there was no memory for the map.
            if recv.congested || self.is_overrun() {
                cong_notify = self.update_congested(&mut recv, self.rcvbuf());
            }
            self.note_readable(&recv);
        }
        drop(recv);
        let result = read(&message);
        if result.is_ok() && keep == Keep::No {
            // Announced without the lock of the readers, because maps may go to a thousand peers.
            drop(reading);
            trace::msg_read(|| self.traced(&message));
            drop(message);
            self.node.stats.add(Counter::RecvBytesFreed, cost);
            self.announce(cong_notify, true);
            return result.map(Some);
        }
        self.put_back(reading, keep, message, cost, cong_notify);
        result.map(Some)
    }

    /// Returns the form of a message in the receive queue that tracepoints use. `None` without an
    /// address, which a socket with messages has.
    #[cold]
    fn traced(&self, message: &Incoming) -> Option<TracedMsg> {
        let bound = self.bound()?;
        // Only the loop transport charges the sender.
        let transport = match message.charge {
            Some(_) => TransportId::Loop,
            None => bound.transport,
        };
        Some(TracedMsg {
            conn: trace::Conn::new(bound.addr, message.saddr, message.tos),
            transport: transport as u8,
            sport: message.sport,
            dport: bound.port,
            bytes: message.len,
            sequence: message.sequence,
        })
    }

    /// Puts back a message that was taken out to be read. `cost` is the amount by which the queue
    /// was reduced. `cong_notify` is the resulting transition, which was not announced.
    fn put_back(
        &self,
        reading: Reading<'_>,
        keep: Keep,
        message: Item<Incoming>,
        cost: usize,
        cong_notify: Transition,
    ) {
        let mut recv = self.recv.lock();
        recv.peeked = None;
        if recv.closed {
            drop(recv);
            drop(message);
            return;
        }
        if keep == Keep::No {
            self.charge(&mut recv, &message, cost);
        }
        recv.messages.push_front(message);
        recv.bytes = recv.bytes.saturating_add(cost);
        let again = self.update_congested(&mut recv, self.rcvbuf());
        self.note_readable(&recv);
        drop(recv);
        drop(reading);
        if keep == Keep::No {
            // A reader may have found the queue empty while the message was out.
            self.wake_readers(poll::IN);
        }
        // After two transitions the port is as before, but a map that was sent between them may
        // differ.
        let last = match again {
            Transition::None => cong_notify,
            again => again,
        };
        self.announce(last, true);
    }

    /// Notes whether there is something to read. Called with the queue locked.
    fn note_readable(&self, recv: &RecvQueue) {
        self.reader_lock.note_readable(!recv.messages.is_empty());
    }

    /// Closes the receive queue and drops its messages.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn close_receive(&self) {
        let mut dropped = Fifo::new();
        let mut recv = self.recv.lock();
        recv.closed = true;
        dropped.append(&mut recv.messages);
        let bytes = core::mem::take(&mut recv.bytes);
        self.uncharge_all(&mut recv);
        let cong_notify = self.update_congested(&mut recv, self.rcvbuf());
        self.note_readable(&recv);
        drop(recv);
        self.note_unread(dropped.len());
        drop(dropped);
        self.node.stats.add(Counter::RecvBytesFreed, bytes);
        self.announce(cong_notify, true);
        self.waiters.wake_all();
    }

    /// Counts and traces messages that were dropped unread.
    #[inline]
    fn note_unread(&self, count: usize) {
        if count > 0 {
            let reason = Counter::RecvDropClosed;
            self.node.stats.add(reason, count);
            if let Some(bound) = self.bound() {
                trace::dropped(&trace::Conn::local(bound.addr), reason, count);
            }
        }
    }

    /// Compares the queue with its limit, `sk_rcvbuf`, and marks the port in the map of its
    /// address. Returns the transition to announce. Called with the queue locked, so that marks are
    /// made in the right order.
    ///
    /// The limit is not halved. The kernel doubles the value that the program sets, to allow for
    /// overhead of messages, and [`Incoming::cost`] includes that overhead.
    fn update_congested(&self, recv: &mut RecvQueue, limit: usize) -> Transition {
        self.update_overrun(recv, limit);
        let limit = match &self.creator {
            Some(account) if account.is_tight() => tight_limit(limit),
            _ => limit,
        };
        let change = transition(recv.congested, recv.bytes as u64, limit as u64);
        if change == Transition::None {
            return change;
        }
        let congested = change == Transition::Congested;
        if let Some(bound) = self.bound() {
            let user = self.creator.as_ref().map(|account| &account.maps);
            let marked = self.node.mark_port(self.net, bound, congested, user);
            if marked.is_err() {
                // Peers cannot be notified, so the next message tries again. Clearing the mark does
                // not fail.
                return Transition::None;
            }
        }
        recv.congested = congested;
        self.congested.store(congested, Relaxed);
        change
    }

    /// Compares the queue, which is locked, with the limit beyond which messages are dropped.
    fn update_overrun(&self, recv: &RecvQueue, limit: usize) {
        let floor = self.node.shared.overrun_floor;
        let overrun = is_overrun(recv.bytes as u64, limit as u64, floor);
        if overrun != self.is_overrun() {
            self.overrun.store(overrun, Relaxed);
        }
    }

    /// Notifies the senders to this port of a transition. No lock held. `at_once`: the caller is in
    /// process context.
    #[inline]
    fn announce(&self, cong_notify: Transition, at_once: bool) {
        if cong_notify != Transition::None {
            self.announce_change(cong_notify, at_once);
        }
    }

    #[cold]
    fn announce_change(&self, cong_notify: Transition, at_once: bool) {
        if cong_notify == Transition::Cleared {
            self.waiters.wake_all();
        }
        if let Some(bound) = self.bound() {
            self.node.announce_map(self.net, bound, at_once);
        }
    }
}

/// A reader's hold of the reader lock.
struct Reading<'a>(&'a Sock<Socket>);

impl<'a> Reading<'a> {
    /// Takes the lock. `None` if another reader has it.
    #[inline]
    fn begin(sk: &'a Sock<Socket>) -> Option<Self> {
        sk.reader_lock.take().then(|| Self(sk))
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(sk) = self;
        if sk.reader_lock.give_back() {
            sk.wake_readers(poll::IN);
        }
    }
}
