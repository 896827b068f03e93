// SPDX-License-Identifier: GPL-2.0

//! State of a socket: its addresses, send buffer charge and receive queue.
//!
//! System calls use it from above (`sock/`), and connections deliver to it.
//!
//! A delivered message belongs to the receive queue. A reader takes it out without a lock held, and
//! puts it back if it cannot be copied to the program. Messages that a closed socket still has are
//! dropped and counted.

use super::{
    address::Peer,
    cong_notify::CongNotify,
    memory::Memory,
    notify_queue::NotifyQueue,
    reader_lock::ReaderLock,
    send_room::SendRoom,
    unread::UnreadInfo,
    upper::{
        Connection,
        Node, //
    },
    waiting::WaitingOn,
    AccountRef,
    Incoming,
    Keep,
    Traces,
    TransportId,
    UpperNode,
    Waiters, //
};
use crate::{
    kapi::{
        net::{
            poll,
            Net,
            Sock, //
        },
        sync::{
            new_spinlock_bh,
            Fifo,
            Item,
            ReadOnce,
            SpinLockBh, //
        }, //
    },
    proto::{
        faults::Standing,
        rcvbuf::{
            is_overrun,
            tight_limit,
            transition,
            Charges,
            Transition, //
        },
        tx::Pressure, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};

/// State that system calls set.
pub(crate) struct SocketControl {
    pub(crate) peer: Option<Peer>,
    /// Transport requested by `SO_RDS_TRANSPORT`.
    pub(crate) chosen: Option<TransportId>,
    /// `RDS_RECVERR`, if the program has set it.
    pub(crate) recverr: Option<bool>,
    /// Timestamps of the receive path that the program requests.
    pub(crate) traces: Traces,
    /// Route of the last message, which the next message most often takes, too.
    pub(crate) last: Option<CachedRoute>,
}

/// Route of messages.
#[derive(Clone)]
pub(crate) enum CachedRoute {
    /// To another node.
    Connection(Arc<Connection>),
    /// To a socket of this node.
    Socket(ARef<Sock<Socket>>),
}

/// Messages that wait to be read.
pub(super) struct RecvQueue {
    pub(super) messages: Fifo<Incoming>,
    /// First message, while a reader peeks at it and will put it back.
    pub(super) peeked: Option<UnreadInfo>,
    /// Memory of the messages, in bytes.
    bytes: usize,
    /// Part of `bytes` that is charged to the user.
    pub(super) charges: Charges,
    congested: bool,
    closed: bool,
}

/// State of a socket.
#[pin_data]
pub(crate) struct Socket {
    pub(crate) node: Arc<Node>,
    pub(crate) net: Net,
    /// Not taken in softirqs.
    #[pin]
    pub(crate) control: SpinLock<SocketControl>,
    /// Type of service of sent messages.
    pub(crate) tos: Atomic<u32>,
    #[pin]
    pub(super) recv: SpinLockBh<RecvQueue>,
    /// `recv` is over its limit. Senders on this node read it without the lock.
    congested: Atomic<bool>,
    /// `recv` is so far over its limit that messages of peers are dropped.
    pub(super) overrun: Atomic<bool>,
    /// Messages may have been dropped, and the error of the socket not been taken.
    pub(super) lost: Atomic<bool>,
    /// The previous call has reported dropped messages.
    pub(super) loss_reported: Atomic<bool>,
    /// Held by a reader while it has a message out of the queue. It also knows whether `recv` has
    /// one.
    reader_lock: ReaderLock,
    /// Lists of waiters that this socket may be on.
    #[pin]
    pub(super) waiting_on: Mutex<KVec<WaitingOn>>,
    /// Senders on this node that wait until this socket is read.
    #[pin]
    pub(crate) waiters: Waiters,
    send_room: SendRoom,
    /// Account of the user whose program created the socket. `None` if that user may exceed limits.
    pub(super) creator: Option<AccountRef>,
    /// If `creator` is `None`, the account of the user whose program first sent to another node.
    /// `None` if that user may exceed limits, too.
    pub(super) sender: SetOnce<Option<AccountRef>>,
    /// `creator` or `sender` may be set. Checked by each `poll(2)`.
    pub(super) is_charged: Atomic<bool>,
    pub(crate) cong_notify: CongNotify,
    #[pin]
    pub(crate) memory: Memory,
    #[pin]
    pub(crate) notify_queue: NotifyQueue,
    /// Standing from past operations on memory of peers. Positive if they succeed, and 0 if none
    /// has finished. A negative number counts those that still have to succeed.
    standing: Atomic<i32>,
    /// Time at which the next operation may begin, on the clock of `RetryTimers`. 0
    /// unless a call failed with `EAGAIN` because of it. Changed with the lock of `RetryTimers`
    /// held.
    pub(crate) retry_at: Atomic<u64>,
    /// The program has closed the socket.
    closed: Atomic<bool>,
}

impl Socket {
    /// Number of operations that have to succeed after a peer has refused one.
    const SUCCESSES_AFTER_REFUSAL: i32 = 16;

    /// Creates a socket. `creator` holds the account of the creating program's user.
    pub(crate) fn new(
        node: Arc<Node>,
        net: Net,
        creator: Option<AccountRef>,
    ) -> impl PinInit<Self> {
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
                    peeked: None,
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
            loss_reported: Atomic::new(false),
            reader_lock: ReaderLock::new(),
            waiting_on <- kernel::new_mutex!(KVec::new(), "Socket::waiting_on"),
            waiters <- Waiters::new(),
            send_room: SendRoom::new(),
            is_charged: Atomic::new(creator.is_some()),
            creator,
            sender: SetOnce::new(),
            cong_notify: CongNotify::new(),
            memory <- Memory::new(),
            notify_queue <- NotifyQueue::new(),
            standing: Atomic::new(0),
            retry_at: Atomic::new(0),
            closed: Atomic::new(false),
        })
    }

    /// Charges `bytes` to the send buffer if less than `limit` is in use. Returns `true` if so.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn charge_send(&self, bytes: usize, limit: usize) -> bool {
        self.send_room.charge(bytes, limit)
    }

    /// Returns the type of service of sent messages.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn tos(&self) -> u8 {
        // CAST: only bytes are stored.
        self.tos.read_once() as u8
    }

    /// Returns `true` if the port of this socket is congested.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested.read_once()
    }

    /// Returns the socket's standing from past operations on memory of peers.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn standing(&self) -> Standing {
        match self.standing.read_once() {
            1.. => Standing::Good,
            0 => Standing::New,
            _ => Standing::Bad,
        }
    }

    /// Notes that an operation has succeeded, or that a peer has refused it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn note_operation(&self, succeeded: bool) {
        let old = self.standing.read_once();
        let new = match old.saturating_add(1) {
            _ if !succeeded => -Self::SUCCESSES_AFTER_REFUSAL,
            // Enough operations have succeeded since the refusal.
            0 => 1,
            next => next.min(1),
        };
        if old != new {
            self.standing.store(new, Relaxed);
        }
    }

    /// Returns `true` if the program has closed the socket, so nothing more is sent or delivered
    /// for it.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.read_once()
    }

    /// Returns `true` if a message waits and no other reader is active. If only another reader
    /// prevents it, waiters are woken when that one is done.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn may_read(&self) -> bool {
        self.reader_lock.may_read()
    }
}

impl Sock<Socket> {
    /// Returns the limit of unacknowledged bytes: half of `sk_sndbuf`, because the kernel has
    /// doubled it.
    #[inline]
    pub(crate) fn send_limit(&self) -> usize {
        self.sndbuf() / 2
    }

    /// Returns the use of the send buffer.
    pub(crate) fn pressure(&self) -> Pressure {
        let limit = self.send_limit();
        match self.send_room.taken() {
            bytes if bytes >= limit => Pressure::Full,
            bytes if bytes >= limit / 2 => Pressure::High,
            _ => Pressure::Low,
        }
    }

    /// Returns the bytes that are charged for sent messages that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.send_room.taken()
    }

    /// Returns `true` if a sent message is not acknowledged.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged() != 0
    }

    /// Returns `true` if there is room to send.
    pub(crate) fn is_writable(&self) -> bool {
        self.send_room.taken() < self.send_limit()
    }

    /// Releases bytes of the send buffer.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn credit_send(&self, bytes: usize) {
        if self.send_room.credit(bytes, || self.send_limit()) {
            self.wake_writers(poll::OUT);
        }
    }

    /// Marks the socket as closed. Code that has found it before checks again.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn begin_close(&self) {
        self.closed.store(true, Relaxed);
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
            drop(message);
            self.node.stats.add(Counter::RecvBytesFreed, cost);
            self.announce(cong_notify, true);
            return result.map(Some);
        }
        self.put_back(reading, keep, message, cost, cong_notify);
        result.map(Some)
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
            if self.node.mark_port(self.net, bound, congested).is_err() {
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
