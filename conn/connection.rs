// SPDX-License-Identifier: GPL-2.0

//! The connection between two addresses. All their sockets share it.
//!
//! A connection outlives its endpoints. Messages stay queued here until the peer has acknowledged
//! them, and sequence numbers continue after a reconnect.

use super::{
    event_mask::EventMask,
    fault_limiter::FaultLimiter,
    key::ConnKey,
    path::{
        Tx,
        TxQueue, //
    },
    receive::RecvSide,
    transport::Request,
    tx_lock::TxLock,
    worker::Worker,
    Node, //
};
use crate::{
    cong::Remote,
    kapi::{
        net::SendMsg,
        print::LogLimit,
        sync::{
            new_spinlock_bh,
            AppendOnlyCell,
            Fifo,
            Item,
            ReadOnce,
            SpinLockBh, //
        },
        task::UserId,
        time, //
    },
    msg::{
        Message,
        MsgOps, //
    },
    proto::{
        credits::Credits,
        ib_private::{
            Refusals,
            Rejection, //
        },
        idle::IdleTracker,
        keepalive::Keepalive,
        tx::SendState,
        wire::FragmentSize, //
    },
    recv_pool::Pools,
    socket::{
        SndbufCharge,
        Waiters, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        DelayedWork,
        Work, //
    }, //
};

/// A connection, see the module documentation.
///
/// # Context
///
/// Methods without this section may be called in any context except hard interrupt. Those that only
/// trace, or load or store an atomic, may be called in any context.
#[pin_data]
pub(crate) struct Connection {
    pub(crate) key: ConnKey,
    pub(crate) node: Arc<Node>,
    /// User whose program first needed the connection. `None` if the peer did.
    pub(super) creator: Option<UserId>,
    /// Generation number that notifies the peer of a restart of the local sequence numbers. They
    /// restart when the node does, or after an earlier connection was forgotten.
    pub(crate) generation: u32,
    /// Source of memory for messages: the pools of the last endpoint's device.
    #[pin]
    pools: AppendOnlyCell<Pools>,
    /// Payload bytes of a fragment: the size agreed on last, or the most likely one.
    pub(super) fragment: Atomic<u32>,
    /// The last endpoint found no memory in large pieces.
    pub(super) lacks_large_pieces: Atomic<bool>,
    /// The peer's congested ports.
    #[pin]
    pub(super) remote: Remote,
    /// Senders that wait for a congested port.
    #[pin]
    pub(crate) waiters: Waiters,
    #[pin]
    pub(super) tx: TxLock<Tx>,
    #[pin]
    pub(super) rx: SpinLockBh<RecvSide>,
    /// The peer broke a protocol rule, so no more frames are accepted from this endpoint.
    pub(super) rx_failed: Atomic<bool>,
    /// The peer has announced that it accepts packed frames.
    pub(super) peer_accepts_packed: Atomic<bool>,
    /// Credits in the peer's headers count: the endpoint uses flow control.
    pub(super) peer_uses_credits: Atomic<bool>,
    /// The peer has asked for an acknowledgement.
    pub(super) ack_wanted: Atomic<bool>,
    /// The highest acknowledgement of the peer so far.
    pub(super) acked: Atomic<u64>,
    /// Messages that were acknowledged and dropped since the current run of frames began.
    pub(super) acked_in_run: Atomic<usize>,
    /// Sequence number of the last whole message of this link, which was delivered, or dropped for
    /// good. Headers carry it as the acknowledgement. 0 before there is one.
    pub(super) ack: Atomic<u64>,
    /// Copy of the state machine's state, for readers without the worker lock.
    pub(super) state: Atomic<u32>,
    #[pin]
    pub(super) worker: Mutex<Worker>,
    /// The latest connection request of the peer that the worker has not handled.
    #[pin]
    pub(super) request: SpinLockBh<Option<KBox<dyn Request>>>,
    /// [`Refusals`] of local requests since the connection was up, as their number.
    pub(super) refusals: Atomic<u32>,
    /// Users whose operations the peer has refused.
    #[pin]
    pub(crate) fault_limiter: FaultLimiter,
    /// Rate limit of log messages about the connection.
    pub(crate) log_limit: LogLimit,
    /// [`ConnEvent`](super::worker::ConnEvent)s.
    pub(super) events: EventMask,
    /// Expiry of the running timer, in nanoseconds of the monotonic clock. 0 if none runs.
    pub(super) deadline: Atomic<u64>,
    #[pin]
    pub(super) work: Work<Connection, 0>,
    #[pin]
    pub(super) timer: DelayedWork<Connection, 1>,
    /// Transmits for senders that keep coming.
    #[pin]
    pub(super) xmit_work: Work<Connection, 3>,
    /// Removes acknowledged messages and those of closed sockets from the queues, and wakes waiting
    /// senders.
    #[pin]
    pub(super) sweep: DelayedWork<Connection, 2>,
    /// Serialises walks that remove messages from the middle of the queues.
    #[pin]
    pub(super) cancel_lock: Mutex<()>,
}

impl Connection {
    pub(super) fn new(
        key: ConnKey,
        node: Arc<Node>,
        creator: Option<UserId>,
        pools: Arc<Pools>,
    ) -> Result<Arc<Self>> {
        let fragment = node
            .transports
            .get(key.transport)
            .map_or_else(FragmentSize::default, |transport| transport.fragment());
        let queue = TxQueue {
            state: SendState::new(node.tunables.ack_policy()),
            unsent: Fifo::new(),
            sent: Fifo::new(),
            finished: Fifo::new(),
            last_operation: None,
            backlog: 0,
            cong_left: 0,
            cong_again: false,
            ack_due: false,
            credits: Credits::off(),
        };
        Arc::pin_init(
            try_pin_init!(Self {
                key,
                node,
                creator,
                generation: time::random_u32().max(1),
                pools <- AppendOnlyCell::new(pools),
                fragment: Atomic::new(fragment.bytes()),
                lacks_large_pieces: Atomic::new(false),
                remote <- Remote::new(),
                waiters <- Waiters::new(),
                tx <- TxLock::new(Tx {
                    queue,
                    link: None,
                    idle_path: None,
                    times_up: 0,
                    times_searched: 0,
                    idle_tracker: IdleTracker::new(),
                    keepalive: Keepalive::new(),
                    keepalive_sequence: None,
                }),
                rx <- new_spinlock_bh!(RecvSide::new(), "Connection::rx"),
                rx_failed: Atomic::new(false),
                peer_accepts_packed: Atomic::new(false),
                peer_uses_credits: Atomic::new(false),
                ack_wanted: Atomic::new(false),
                acked: Atomic::new(0),
                acked_in_run: Atomic::new(0),
                ack: Atomic::new(0),
                state: Atomic::new(0),
                worker <- kernel::new_mutex!(Worker::new(), "Connection::worker"),
                request <- new_spinlock_bh!(None, "Connection::request"),
                refusals: Atomic::new(0),
                fault_limiter <- FaultLimiter::new(),
                log_limit: LogLimit::new(),
                events: EventMask::new(),
                deadline: Atomic::new(0),
                work <- kernel::new_work!("Connection::work"),
                timer <- kernel::new_delayed_work!("Connection::timer"),
                xmit_work <- kernel::new_work!("Connection::xmit_work"),
                sweep <- kernel::new_delayed_work!("Connection::sweep"),
                cancel_lock <- kernel::new_mutex!((), "Connection::cancel_lock"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns `true` if the local address is the lower one. This settles which side connects.
    pub(crate) fn is_lower(&self) -> bool {
        self.key.laddr < self.key.faddr
    }

    /// Notes a rejection of a local request by the peer itself, not by its CM, with this data. The
    /// event handler of the endpoint calls this, so there is one call at a time.
    pub(crate) fn note_rejection(&self, private_data: &[u8]) {
        let refusals = self.refusals().after(Rejection::parse(private_data));
        self.refusals.store(refusals.number(), Relaxed);
    }

    /// Returns the refusals of local requests since the connection was up.
    pub(crate) fn refusals(&self) -> Refusals {
        Refusals::from_number(self.refusals.load(Relaxed))
    }

    /// Returns `true` if a port of the peer is congested.
    #[inline]
    pub(crate) fn is_congested(&self, port: u16) -> bool {
        self.remote.is_congested(port)
    }

    /// Returns `true` if the peer accepts packed frames.
    #[inline]
    pub(crate) fn peer_accepts_packed(&self) -> bool {
        self.peer_accepts_packed.read_once()
    }

    /// Returns the acknowledgement for the header of the next frame.
    #[inline]
    pub(crate) fn ack(&self) -> u64 {
        self.ack.read_once()
    }

    /// Returns the pools that provide memory for messages.
    #[inline]
    pub(super) fn pools(&self) -> &Pools {
        self.pools.get()
    }

    /// Sets the pools for messages: those of the device that the connection now uses.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn set_pools(&self, pools: &Arc<Pools>) -> Result {
        self.pools.set(pools)
    }

    /// Makes the next endpoint use the smallest fragments, because there is no memory in larger
    /// pieces.
    pub(crate) fn note_lack_of_large_pieces(&self) {
        self.lacks_large_pieces.store(true, Relaxed);
    }

    /// Returns the largest fragments that an endpoint may propose or agree to. `wanted` is the
    /// choice of its device or peer.
    pub(crate) fn largest_fragments(&self, wanted: FragmentSize) -> FragmentSize {
        if self.lacks_large_pieces.load(Relaxed) {
            FragmentSize::K4
        } else {
            wanted
        }
    }

    /// Returns the memory that a message of `len` bytes takes, in bytes.
    pub(crate) fn cost_of_message(&self, len: u32) -> usize {
        Message::cost(len, FragmentSize::at_most(self.fragment.read_once()))
    }

    /// Creates a message for [`Self::send`] from the data of a system call.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if the program's memory cannot be read.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn message_from_user(
        &self,
        (sport, dport): (u16, u16),
        msg: &mut SendMsg<'_>,
        len: u32,
        ops: MsgOps,
        charge: Option<SndbufCharge>,
    ) -> Result<Item<Message>> {
        let cut = FragmentSize::at_most(self.fragment.read_once());
        let ports = (sport, dport);
        let message = Message::from_user(self.pools(), cut, ports, msg, len, ops, charge)?;
        self.node.stats.add(Counter::CopyFromUser, len as usize);
        Ok(message)
    }

    /// Traces the failure of step `what`, which ends the connection or an attempt. abi.md lists the
    /// meaning of `code`.
    #[cold]
    pub(crate) fn note_error(&self, what: &str, code: i32) {
        trace::error(&self.key.traced(), what, code);
    }

    /// Traces a failure as [`Self::note_error`] does, with an error as the code.
    #[cold]
    pub(crate) fn note_failure(&self, what: &str, why: impl Into<Error>) {
        self.note_error(what, why.into().to_errno());
    }

    /// Counts and traces `count` dropped messages or frames. Does nothing for 0.
    #[cold]
    pub(crate) fn note_drop(&self, reason: Counter, count: usize) {
        if count > 0 {
            self.node.stats.add(reason, count);
            trace::dropped(&self.key.traced(), reason, count);
        }
    }
}
