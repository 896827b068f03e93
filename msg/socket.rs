// SPDX-License-Identifier: GPL-2.0

//! The state of a socket: where it is bound, what it sends and what waits to be read.
//!
//! System calls work on it from above (`sock/`), transports from below; so it lives with the
//! messages that they exchange.

use super::{
    cong_notify::CongNotify, memory::Memory, notify_queue::NotifyQueue, reader_lock::ReaderLock,
    send_room::SendRoom, unread::UnreadInfo, waiting::WaitingOn, Incoming, Traces,
};
use crate::cong::Waiters;
use crate::conn::{Connection, Counter, Holder, Node};
use crate::kapi::{
    net::{poll, Net, Sock},
    sync::{new_spinlock_bh, Fifo, Item, Peek, SpinLockBh},
    trace,
};
use crate::proto::{
    faults::Standing,
    rcvbuf::{is_overrun, tight_limit, transition, Charges, Transition},
    tx::Pressure,
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, Mutex, SetOnce, SpinLock,
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
pub(crate) struct SocketControl {
    pub(crate) peer: Option<Peer>,
    /// The transport that `SO_RDS_TRANSPORT` asked for.
    pub(crate) chosen: Option<TransportId>,
    /// `RDS_RECVERR`, if the program has set it.
    pub(crate) recverr: Option<bool>,
    /// What the program wants to know of the receive path.
    pub(crate) traces: Traces,
    /// Where the last message went: the next one most often goes the same way.
    pub(crate) last: Option<CachedRoute>,
}

/// The way that messages take.
#[derive(Clone)]
pub(crate) enum CachedRoute {
    /// To another node.
    Connection(Arc<Connection>),
    /// To a socket of this node.
    Socket(ARef<Sock<Socket>>),
}

/// What waits to be read.
pub(super) struct RecvQueue {
    pub(super) messages: Fifo<Incoming>,
    /// The message in front of them that a reader looks at, and will put back.
    pub(super) looked_at: Option<UnreadInfo>,
    /// Memory of the messages, in bytes.
    bytes: usize,
    /// What of that the user is charged with.
    pub(super) charges: Charges,
    congested: bool,
    closed: bool,
}

/// The state of a socket.
#[pin_data]
pub(crate) struct Socket {
    pub(crate) node: Arc<Node>,
    pub(crate) net: Net,
    /// Not for softirqs.
    #[pin]
    pub(crate) control: SpinLock<SocketControl>,
    /// Type of service of what is sent.
    pub(crate) tos: Atomic<u32>,
    #[pin]
    pub(super) recv: SpinLockBh<RecvQueue>,
    /// Whether `recv` is over its limit: read without the lock by senders on this node.
    congested: Atomic<bool>,
    /// Whether `recv` is so far over its limit that peers get no more in.
    pub(super) overrun: Atomic<bool>,
    /// Messages may have been lost and the error of the socket not been taken.
    pub(super) lost: Atomic<bool>,
    /// The call before has told that.
    pub(super) loss_told: Atomic<bool>,
    /// Of a reader while it has a message out of the queue, and whether `recv` has one.
    turn: ReaderLock,
    /// The lists of waiters that this socket may be on.
    #[pin]
    pub(super) waiting_on: Mutex<KVec<WaitingOn>>,
    /// Senders on this node that wait for this socket's reader.
    #[pin]
    pub(crate) waiters: Waiters,
    send_room: SendRoom,
    /// The account of the user whose program has made the socket; `None` if that may exceed limits.
    pub(super) maker: Option<Holder>,
    /// Then of whose program has first sent something to another node; `None` if that may, too.
    pub(super) sender: SetOnce<Option<Holder>>,
    /// Whether one of these may be there, which `poll(2)` asks each time.
    pub(super) is_charged: Atomic<bool>,
    pub(crate) cong_notify: CongNotify,
    #[pin]
    pub(crate) memory: Memory,
    #[pin]
    pub(crate) notify_queue: NotifyQueue,
    /// How operations on memory of peers have ended: positive if they go well, 0 if none has ended, or by how many it is
    /// below 0 that have to go well.
    standing: Atomic<i32>,
    /// When the next operation may begin, on the clock of [`Turns`](crate::conn::Turns); 0 unless a
    /// call was told to come again. Changed with its lock held.
    pub(crate) turn_at: Atomic<u64>,
    /// The program has closed the socket.
    closed: Atomic<bool>,
}

impl Socket {
    /// Operations that have to go well after one that a peer has refused.
    const AMENDS: i32 = 16;

    /// A socket of a program whose user has the account of `maker`.
    pub(crate) fn new(node: Arc<Node>, net: Net, maker: Option<Holder>) -> impl PinInit<Self> {
        pin_init!(Self {
            node,
            net,
            control <- kernel::new_spinlock!(
                SocketControl {
                    peer: None,
                    chosen: None,
                    recverr: None,
                    traces: Traces::NONE,
                    last: None,
                },
                "Socket::control"
            ),
            tos: Atomic::new(0),
            recv <- new_spinlock_bh!(
                RecvQueue {
                    messages: Fifo::new(),
                    looked_at: None,
                    bytes: 0,
                    charges: Charges::new(),
                    congested: false,
                    closed: false,
                },
                "Socket::recv"
            ),
            congested: Atomic::new(false),
            overrun: Atomic::new(false),
            lost: Atomic::new(false),
            loss_told: Atomic::new(false),
            turn: ReaderLock::new(),
            waiting_on <- kernel::new_mutex!(KVec::new(), "Socket::waiting_on"),
            waiters <- Waiters::new(),
            send_room: SendRoom::new(),
            is_charged: Atomic::new(maker.is_some()),
            maker,
            sender: SetOnce::new(),
            cong_notify: CongNotify::new(),
            memory <- Memory::new(),
            notify_queue <- NotifyQueue::new(),
            standing: Atomic::new(0),
            turn_at: Atomic::new(0),
            closed: Atomic::new(false),
        })
    }

    /// Adds to what is being sent if it is below `limit`. Any context.
    pub(super) fn charge_send(&self, bytes: usize, limit: usize) -> bool {
        self.send_room.charge(bytes, limit)
    }

    /// Type of service of what is sent. Any context.
    #[inline]
    pub(crate) fn tos(&self) -> u8 {
        // CAST: only bytes are stored.
        self.tos.peek() as u8
    }

    /// Whether the port of this socket takes no more for now. Any context.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.peek()
    }

    /// How operations on memory of peers have ended. Any context.
    pub(crate) fn standing(&self) -> Standing {
        match self.standing.peek() {
            1.. => Standing::Good,
            0 => Standing::New,
            _ => Standing::Bad,
        }
    }

    /// An operation has gone well, or a peer has refused it. Any context.
    pub(super) fn note_operation(&self, well: bool) {
        let old = self.standing.peek();
        let new = match old.saturating_add(1) {
            _ if !well => -Self::AMENDS,
            // It has made amends.
            0 => 1,
            next => next.min(1),
        };
        if old != new {
            self.standing.store(new, Relaxed);
        }
    }

    /// The program has closed the socket: nothing is delivered or sent for it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.peek()
    }

    /// Whether a message waits, and nobody else is reading one. If only somebody is, whoever waits is woken when that
    /// is over. Any context.
    pub(crate) fn may_read(&self) -> bool {
        self.turn.may_read()
    }
}

impl Sock<Socket> {
    /// Bytes that may be under way, half of `sk_sndbuf`, which the kernel doubled.
    #[inline]
    pub(crate) fn send_limit(&self) -> usize {
        self.sndbuf() / 2
    }

    /// How much of the send buffer is in use.
    pub(super) fn pressure(&self) -> Pressure {
        let limit = self.send_limit();
        match self.send_room.taken() {
            bytes if bytes >= limit => Pressure::Full,
            bytes if bytes >= limit / 2 => Pressure::High,
            _ => Pressure::Low,
        }
    }

    /// What the socket pays for all that it has sent and that is not acknowledged yet, in bytes.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.send_room.taken()
    }

    /// Whether anything sent is not acknowledged yet.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged() != 0
    }

    /// Whether there is room to send.
    pub(crate) fn is_writable(&self) -> bool {
        self.send_room.taken() < self.send_limit()
    }

    /// Gives room in the send buffer back. Any context.
    pub(super) fn credit_send(&self, bytes: usize) {
        if self.send_room.credit(bytes, || self.send_limit()) {
            self.wake_writers(poll::OUT);
        }
    }

    /// From here on nobody finds this socket, and who has found it before looks again. Any context.
    pub(crate) fn begin_close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Queues a message to be read. Any context, no lock held.
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
                trace::dropped(&conn, Counter::RecvDropDeadSock.name(), 1);
            }
            drop(message);
            return;
        }
        self.charge(&mut recv, &message, cost);
        recv.messages.push_back(message);
        recv.bytes = recv.bytes.saturating_add(cost);
        let cong_notify = self.judge(&mut recv, buffer.bytes);
        self.turn.note_readable(true);
        drop(recv);
        stats.count(Counter::RecvQueued, Counter::RecvBytesAdded, cost);
        self.wake_readers(poll::IN);
        self.announce(cong_notify);
    }

    /// Has `read` read the oldest message, if there is one and nobody else is reading. The message is gone then, unless
    /// `read` fails or `keep` says that it is only a look. Process context; may sleep.
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
            recv.looked_at = Some(UnreadInfo::of(&message));
        } else {
            cost = message.cost();
            recv.bytes = recv.bytes.saturating_sub(cost);
            self.uncharge(&mut recv, &message, cost);
            // What leaves a queue does not fill it. It may be overrun and not marked, for want of memory.
            if recv.congested || self.is_overrun() {
                cong_notify = self.judge(&mut recv, self.rcvbuf());
            }
            self.note_readable(&recv);
        }
        drop(recv);
        let result = read(&message);
        if result.is_ok() && keep == Keep::No {
            // Maps may go to a thousand peers.
            drop(reading);
            drop(message);
            self.node.stats.add(Counter::RecvBytesFreed, cost);
            self.announce(cong_notify);
            return result.map(Some);
        }
        self.put_back(reading, keep, message, cost, cong_notify);
        result.map(Some)
    }

    /// Puts a message back that was taken out to be read, with its `cost` where that was taken off;
    /// `cong_notify` came of it and was not announced.
    fn put_back(
        &self,
        reading: Reading<'_>,
        keep: Keep,
        message: Item<Incoming>,
        cost: usize,
        cong_notify: Transition,
    ) {
        let mut recv = self.recv.lock();
        recv.looked_at = None;
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
        let again = self.judge(&mut recv, self.rcvbuf());
        self.note_readable(&recv);
        drop(recv);
        drop(reading);
        if keep == Keep::No {
            // Someone may have looked while the message was away.
            self.wake_readers(poll::IN);
        }
        // If both are news the port is as before, but a map that was sent meanwhile may say otherwise.
        self.announce(if again == Transition::None {
            cong_notify
        } else {
            again
        });
    }

    /// Remembers whether there is something to read. Called with the queue locked.
    fn note_readable(&self, recv: &RecvQueue) {
        self.turn.note_readable(!recv.messages.is_empty());
    }

    /// Ends the receive queue; what is in it is dropped. Process context.
    pub(crate) fn close_receive(&self) {
        let mut dropped = Fifo::new();
        let mut recv = self.recv.lock();
        recv.closed = true;
        dropped.append(&mut recv.messages);
        let bytes = core::mem::take(&mut recv.bytes);
        self.uncharge_all(&mut recv);
        let cong_notify = self.judge(&mut recv, self.rcvbuf());
        self.note_readable(&recv);
        drop(recv);
        self.note_unread(dropped.len());
        drop(dropped);
        self.node.stats.add(Counter::RecvBytesFreed, bytes);
        self.announce(cong_notify);
        self.waiters.wake_all();
    }

    /// Counts and traces messages that nobody will read.
    #[inline]
    fn note_unread(&self, count: usize) {
        if count > 0 {
            let reason = Counter::RecvDropClosed;
            self.node.stats.add(reason, count);
            if let Some(bound) = self.bound() {
                trace::dropped(&trace::Conn::local(bound.addr), reason.name(), count);
            }
        }
    }

    /// Compares the queue with its limit, `sk_rcvbuf`, and marks the port in the map of its address. Returns what is
    /// news to others. Called with the queue locked, so that marks come in the order of what they say.
    ///
    /// The kernel doubles what a program asks for, for what messages take beside their payload. That is counted here.
    fn judge(&self, recv: &mut RecvQueue, limit: usize) -> Transition {
        let overrun = is_overrun(recv.bytes as u64, limit as u64, self.node.unread_patience);
        if overrun != self.is_overrun() {
            self.overrun.store(overrun, Relaxed);
        }
        let limit = match &self.maker {
            Some(account) if account.is_tight() => tight_limit(limit),
            _ => limit,
        };
        let change = transition(recv.congested, recv.bytes as u64, limit as u64);
        if change == Transition::None {
            return change;
        }
        let congested = change == Transition::Congested;
        if let Some(bound) = self.bound() {
            if self.node.mark_port(self.net, bound, congested).is_err() {
                // Peers could not be told: the next message tries again. The end of a congestion does not fail.
                return Transition::None;
            }
        }
        recv.congested = congested;
        self.congested.store(congested, Relaxed);
        change
    }

    /// Tells those who send to this port about a change. No lock held.
    #[inline]
    fn announce(&self, cong_notify: Transition) {
        if cong_notify != Transition::None {
            self.announce_change(cong_notify);
        }
    }

    #[cold]
    fn announce_change(&self, cong_notify: Transition) {
        if cong_notify == Transition::Cleared {
            self.waiters.wake_all();
        }
        if let Some(bound) = self.bound() {
            self.node.send_congestion_maps(self.net, bound);
        }
    }

    /// Sets what the program wants to know of the receive path. Process context.
    pub(crate) fn set_traces(&self, traces: Traces) {
        let mut control = self.control.lock();
        let before = core::mem::replace(&mut control.traces, traces);
        self.node.note_tracing(before.is_empty(), traces.is_empty());
    }
}

/// The turn of a reader.
struct Reading<'a>(&'a Sock<Socket>);

impl<'a> Reading<'a> {
    /// `None` if it is another one's turn.
    #[inline]
    fn begin(sk: &'a Sock<Socket>) -> Option<Self> {
        sk.turn.take().then(|| Self(sk))
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(sk) = self;
        if sk.turn.give_back() {
            sk.wake_readers(poll::IN);
        }
    }
}

/// What becomes of a message that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    No,
    /// It was only looked at.
    Yes,
}
