// SPDX-License-Identifier: GPL-2.0

//! State of a socket: its addresses, send buffer charge, receive queue and flags.
//!
//! System calls use it from above (`af_rds/`), and connections deliver to it.

use super::{
    address::Peer,
    cong_notify::CongNotify,
    forward::{
        Connection,
        Node, //
    },
    memory::Memory,
    notify_queue::NotifyQueue,
    reader_lock::ReaderLock,
    recv_queue::RecvQueue,
    send_room::SendRoom,
    AccountRef,
    RoomWaiters,
    Traces,
    TransportId,
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
            ReadOnce,
            SpinLockBh, //
        }, //
    },
    proto::{
        faults::Standing,
        tx::Pressure, //
    }, //
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

/// Owner of a list of waiters that a socket is on.
#[derive(Clone)]
pub(crate) enum WaitingOn {
    Peer(Arc<Connection>),
    Socket(ARef<Sock<Socket>>),
    Room(Arc<RoomWaiters>),
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
    pub(super) congested: Atomic<bool>,
    /// `recv` is so far over its limit that messages of peers are dropped.
    pub(super) overrun: Atomic<bool>,
    /// Messages may have been dropped, and the error of the socket not been taken.
    pub(super) lost: Atomic<bool>,
    /// The previous call has reported dropped messages.
    pub(super) loss_reported: Atomic<bool>,
    /// Held by a reader while it has a message out of the queue. It also knows whether `recv` has
    /// one.
    pub(super) reader_lock: ReaderLock,
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
    /// Time at which the next operation may begin, or a pool may have room, on the clock of
    /// `RetryTimers`. 0 unless a call failed with `EAGAIN` because of it. Changed with the lock of
    /// `RetryTimers` held.
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
            recv <- new_spinlock_bh!(RecvQueue::new(), "Socket::recv"),
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

    /// Returns the type of service of messages over a transport. TCP has none, as on C. A socket
    /// may have got one before its bind.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn tos_over(&self, transport: TransportId) -> u8 {
        match transport {
            TransportId::Tcp => 0,
            TransportId::Ib | TransportId::Loop => self.tos(),
        }
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
}
