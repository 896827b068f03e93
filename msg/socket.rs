// SPDX-License-Identifier: GPL-2.0

//! The state of a socket: where it is bound, what it sends and what waits to be read.
//!
//! System calls work on it from above (`sock/`), transports from below; so it lives with the
//! messages that they exchange.

use super::Incoming;
use crate::cong::Waiters;
use crate::conn::{Counter, Node};
use crate::kapi::{
    net::{poll, Net, Sock},
    sync::{new_spinlock_bh, Fifo, SpinLockBh},
};
use crate::proto::rcvbuf::{transition, Transition};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, SetOnce,
    },
};

/// The transports by their numbers in `SO_RDS_TRANSPORT`.
///
/// Source: `RDS_TRANS_*` in `include/uapi/linux/rds.h`; C RDS has the number of the loop transport
/// internally.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub(crate) enum TransportId {
    Ib = 0,
    Tcp = 2,
    Loop = 3,
}

/// Where a socket is bound. That is for life.
pub(crate) struct Bound {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
    pub(crate) transport: TransportId,
}

/// Where a socket sends if the call names no one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}

/// What system calls set.
pub(crate) struct Control {
    pub(crate) peer: Option<Peer>,
    /// The transport that `SO_RDS_TRANSPORT` asked for.
    pub(crate) pinned: Option<TransportId>,
    pub(crate) tos: u8,
    pub(crate) recverr: bool,
}

/// What waits to be read.
struct RecvQueue {
    messages: Fifo<Incoming>,
    /// Memory of the messages, in bytes.
    bytes: usize,
    congested: bool,
    closed: bool,
}

/// The state of a socket.
#[pin_data]
pub(crate) struct Socket {
    pub(crate) node: Arc<Node>,
    pub(crate) net: Net,
    pub(crate) bound: SetOnce<Bound>,
    #[pin]
    pub(crate) control: SpinLockBh<Control>,
    #[pin]
    recv: SpinLockBh<RecvQueue>,
    /// Whether `recv` is over its limit: read without the lock by senders on this node.
    congested: Atomic<bool>,
    /// Senders on this node that wait for this socket's reader.
    #[pin]
    pub(crate) waiters: Waiters,
    /// Bytes sent and not yet acknowledged, or not yet read on the loop transport.
    send_bytes: Atomic<usize>,
    /// A port that was congested for this socket may not be so any more; for `poll(2)`, once.
    cong_news: Atomic<bool>,
    /// The program has closed the socket.
    closed: Atomic<bool>,
}

impl Socket {
    pub(crate) fn new(node: Arc<Node>, net: Net) -> impl PinInit<Self> {
        pin_init!(Self {
            node,
            net,
            bound: SetOnce::new(),
            control <- new_spinlock_bh!(
                Control {
                    peer: None,
                    pinned: None,
                    tos: 0,
                    recverr: false,
                },
                "Socket::control"
            ),
            recv <- new_spinlock_bh!(
                RecvQueue {
                    messages: Fifo::new(),
                    bytes: 0,
                    congested: false,
                    closed: false,
                },
                "Socket::recv"
            ),
            congested: Atomic::new(false),
            waiters <- Waiters::new(),
            send_bytes: Atomic::new(0),
            cong_news: Atomic::new(false),
            closed: Atomic::new(false),
        })
    }

    /// Adds to what is being sent if it is below `limit`. Any context.
    pub(super) fn charge_send(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.send_bytes.load(Relaxed);
        while old < limit {
            match self
                .send_bytes
                .cmpxchg(old, old.saturating_add(bytes), Full)
            {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Whether the port of this socket takes no more for now. Any context.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.load(Relaxed)
    }

    /// The program has closed the socket: nothing is delivered or sent for it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// A congested port may have room again; the next `poll(2)` says so. Any context.
    pub(crate) fn note_congestion_news(&self) {
        self.cong_news.store(true, Relaxed);
    }

    /// Whether there was such news since the last call.
    pub(crate) fn take_congestion_news(&self) -> bool {
        self.cong_news.load(Relaxed) && self.cong_news.xchg(false, Full)
    }

    /// Whether a message waits to be read. Any context.
    pub(crate) fn is_readable(&self) -> bool {
        !self.recv.lock().messages.is_empty()
    }
}

impl Sock<Socket> {
    /// Bytes that may be under way, half of `sk_sndbuf`, which the kernel doubled.
    #[inline]
    pub(crate) fn send_limit(&self) -> usize {
        self.sndbuf() / 2
    }

    /// Whether more than half of the send buffer is in use.
    pub(super) fn is_half_full(&self) -> bool {
        self.send_bytes.load(Relaxed) >= self.send_limit() / 2
    }

    /// Whether anything sent is not acknowledged yet.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.send_bytes.load(Relaxed) != 0
    }

    /// Whether there is room to send.
    pub(crate) fn is_writable(&self) -> bool {
        self.send_bytes.load(Relaxed) < self.send_limit()
    }

    /// Gives room in the send buffer back. Any context.
    pub(super) fn credit_send(&self, bytes: usize) {
        // Full order: who waits either sees the room or is seen waiting.
        let old = self.send_bytes.fetch_sub(bytes, Full);
        if old.wrapping_sub(bytes) < self.send_limit() {
            self.wake_writers(poll::OUT);
        }
    }

    /// Queues a message to be read. Any context, no lock held.
    pub(crate) fn deliver(&self, message: KBox<Incoming>) {
        let cost = message.cost();
        let stats = &self.node.stats;
        let mut recv = self.recv.lock();
        if recv.closed {
            drop(recv);
            stats.inc(Counter::RecvDropDeadSock);
            drop(message);
            return;
        }
        recv.messages.push_back(message);
        recv.bytes = recv.bytes.saturating_add(cost);
        let change = self.judge(&mut recv);
        drop(recv);
        stats.inc(Counter::RecvQueued);
        stats.add(Counter::RecvBytesAdded, cost);
        self.wake_readers(poll::IN);
        self.announce(change);
    }

    /// Takes the oldest message. The caller reads it or gives it back. Process context.
    pub(crate) fn take_message(&self) -> Option<KBox<Incoming>> {
        let mut recv = self.recv.lock();
        let message = recv.messages.pop_front()?;
        recv.bytes = recv.bytes.saturating_sub(message.cost());
        let change = self.judge(&mut recv);
        drop(recv);
        self.announce(change);
        Some(message)
    }

    /// Puts a message back that could not be read, or was only looked at. Process context.
    pub(crate) fn put_back(&self, message: KBox<Incoming>) {
        let mut recv = self.recv.lock();
        if recv.closed {
            drop(recv);
            drop(message);
            return;
        }
        recv.bytes = recv.bytes.saturating_add(message.cost());
        recv.messages.push_front(message);
        let change = self.judge(&mut recv);
        drop(recv);
        self.wake_readers(poll::IN);
        self.announce(change);
    }

    /// Ends the receive queue; what is in it is dropped. Process context.
    pub(crate) fn close_receive(&self) {
        self.closed.store(true, Relaxed);
        let mut dropped = Fifo::new();
        let mut recv = self.recv.lock();
        recv.closed = true;
        dropped.append(&mut recv.messages);
        recv.bytes = 0;
        let change = self.judge(&mut recv);
        drop(recv);
        drop(dropped);
        self.announce(change);
        self.waiters.wake_all();
    }

    /// Compares the queue with its limit, and keeps what that says.
    fn judge(&self, recv: &mut RecvQueue) -> Transition {
        let limit = self.rcvbuf() / 2;
        let change = transition(recv.congested, recv.bytes as u64, limit as u64);
        if change != Transition::None {
            recv.congested = change == Transition::Congested;
            self.congested.store(recv.congested, Relaxed);
        }
        change
    }

    /// Tells those who send to this port about a change. No lock held.
    fn announce(&self, change: Transition) {
        if change == Transition::None {
            return;
        }
        let full = change == Transition::Congested;
        if !full {
            self.waiters.wake_all();
        }
        if let Some(bound) = self.bound.as_ref() {
            self.node.announce_congestion(self.net, bound, full);
        }
    }
}
