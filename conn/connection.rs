// SPDX-License-Identifier: GPL-2.0

//! The connection between two addresses, which all their sockets share.
//!
//! It outlives what happens to its endpoints: messages stay queued here until the peer has
//! acknowledged them, and what they are numbered goes on over reconnects.

use super::{
    flag::Flag,
    info::QueueKind,
    key::ConnKey,
    offenders::Offenders,
    receive::RecvSide,
    transport::{Link, Request},
    worker::Worker,
    Counter, Node,
};
use crate::cong::{Remote, Waiters};
use crate::kapi::{
    net::SendMsg,
    sync::{new_spinlock_bh, AppendOnlyCell, Fifo, Item, Peek, SpinLockBh, SpinLockBhGuard},
    task::UserId,
    time, trace,
};
use crate::msg::{Message, MsgOps, OpStatus, SndbufCharge};
use crate::proto::{
    credits::Credits,
    idle::IdleTracker,
    info::RdmaPath,
    keepalive::Silence,
    packed,
    tx::SendState,
    wire::{FragmentSize, CONG_MAP_BYTES, PING_PORT, PROBE_PORT},
};
use crate::recv_pool::Pools;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, Mutex,
    },
    workqueue::{DelayedWork, Work},
};

/// What waits to be sent, and what was sent and is not acknowledged.
pub(crate) struct TxQueue {
    pub(crate) state: SendState,
    pub(crate) unsent: Fifo<Message>,
    pub(crate) sent: Fifo<Message>,
    /// Messages that were there for an operation that is posted, or that was refused; to be dropped without the lock.
    pub(crate) finished: Fifo<Message>,
    /// The operation that was posted last.
    pub(crate) last_operation: Option<Arc<OpStatus>>,
    /// What the unsent messages take of a frame that they share, in bytes; more if they may not, or if
    /// some were sent since the queue was empty.
    pub(super) backlog: u32,
    /// Bytes of the congestion map that are still to go out.
    pub(crate) cong_left: u32,
    /// The map has changed since the part of it that is out went: it has to go again after that.
    pub(crate) cong_again: bool,
    /// The peer waits for an acknowledgement, and no message has carried it yet.
    pub(crate) ack_due: bool,
    /// What the peer has receives for.
    pub(crate) credits: Credits,
}

impl TxQueue {
    /// Whether there is nothing to post.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsent.is_empty() && self.cong_left == 0 && !self.is_header_due()
    }

    /// Whether a header has to go out though there is nothing to send.
    pub(crate) fn is_header_due(&self) -> bool {
        self.ack_due || self.credits.is_due()
    }

    /// The last message that a port of ours may have in the queues; `None` if it has none there. It may be that of
    /// another port, see `SendState::last_of`. The queues are in order, and what is in them may be acknowledged already.
    pub(super) fn last_of(&self, sport: u16) -> Option<u64> {
        let last = self.state.last_of(sport);
        let begins_before =
            |queue: &Fifo<Message>| queue.front().is_some_and(|it| it.sequence <= last);
        (begins_before(&self.unsent) || begins_before(&self.sent)).then_some(last)
    }

    pub(super) fn queue_kind(&mut self, queue_kind: QueueKind) -> &mut Fifo<Message> {
        match queue_kind {
            QueueKind::Unsent => &mut self.unsent,
            QueueKind::Sent => &mut self.sent,
        }
    }

    /// Moves the first unsent message, which the device has now, to those that are sent.
    pub(crate) fn note_sent(&mut self) {
        if let Some(mut message) = self.unsent.pop_front() {
            // Should it have to go again.
            message.fragment = 0;
            self.sent.push_back(message);
        }
    }

    /// Adds a message to those to be sent.
    fn push(&mut self, message: Item<Message>) {
        if self.unsent.is_empty() {
            self.backlog = 0;
        }
        let bytes = if message.is_packable() {
            packed::bytes(message.len)
        } else {
            u32::MAX
        };
        self.backlog = self.backlog.saturating_add(bytes);
        self.unsent.push_back(message);
    }

    /// Whether what is posted next is a read.
    pub(crate) fn reads_next(&self) -> bool {
        let reads = |first: &Message| {
            first.reads_next() && (self.cong_left == 0 || first.is_partially_sent())
        };
        self.unsent.front().is_some_and(reads)
    }

    /// Whether all that waits are messages that may share a frame, and they do not fill it.
    pub(crate) fn can_delay(&self) -> bool {
        self.cong_left == 0 && !self.unsent.is_empty() && self.backlog < packed::LONGEST_FRAME
    }

    /// Whether the first two unsent messages may share a frame.
    pub(crate) fn can_pack(&self) -> bool {
        self.unsent.len() > 1 && self.unsent.iter().take(2).all(Message::is_packable)
    }
}

/// The queue, and what takes from it while the connection is up.
pub(super) struct Tx {
    pub(super) queue: TxQueue,
    pub(super) link: Option<Arc<dyn Link>>,
    /// The path of the last link, if nothing waited to be sent or acknowledged when that went.
    /// Until the next attempt.
    pub(super) rest: Option<RdmaPath>,
    /// How often there was a link.
    pub(super) times_up: u64,
    /// `times_up` when operations were looked for that a queue pair has taken with it.
    pub(super) times_searched: u64,
    /// What the looks at the connection have found.
    pub(super) idle_tracker: IdleTracker,
    /// Likewise, those that listen for the peer.
    pub(super) silence: Silence,
    /// The number of a question of theirs that is in the queues.
    pub(super) asking: Option<u64>,
}

impl Tx {
    pub(super) fn transmit(&mut self, connection: &Connection) {
        if let Some(link) = &self.link {
            link.transmit(connection, &mut self.queue);
        }
    }

    /// Whether messages wait to be sent or acknowledged. A question that is not out does not, for its own sake.
    pub(super) fn is_pending(&self) -> bool {
        let TxQueue { unsent, sent, .. } = &self.queue;
        let asks = unsent.front().is_some_and(|first| first.asks);
        !sent.is_empty() || unsent.len() > usize::from(asks)
    }
}

/// A connection. See the module's description.
#[pin_data]
pub(crate) struct Connection {
    pub(crate) key: ConnKey,
    pub(crate) node: Arc<Node>,
    /// Whose program was the first to need it, if it was not the peer.
    pub(super) creator: Option<UserId>,
    /// Tells the peer that our numbers have started again, when the node has, or has forgotten the
    /// connection that there was before.
    pub(crate) generation: u32,
    /// Where the memory of messages comes from: the pools of the device that the last endpoint had.
    #[pin]
    pools: AppendOnlyCell<Pools>,
    /// What was agreed on with the peer the last time, or will be most likely: payload bytes of a
    /// fragment.
    pub(super) fragment: Atomic<u32>,
    /// The last endpoint found no memory in large pieces.
    pub(super) lacks_large_pieces: Atomic<bool>,
    /// The peer's full ports.
    #[pin]
    pub(super) remote: Remote,
    /// Senders that wait for one of them.
    #[pin]
    pub(crate) waiters: Waiters,
    #[pin]
    pub(super) tx: SpinLockBh<Tx>,
    #[pin]
    pub(super) rx: SpinLockBh<RecvSide>,
    /// The peer broke a rule, so that nothing more is taken from this endpoint.
    pub(super) rx_failed: Atomic<bool>,
    /// The peer has told that it takes several messages in a frame.
    pub(super) peer_accepts_packed: Atomic<bool>,
    /// What the peer tells of its receives may count, or shows whether it wants to hear of ours.
    pub(super) peer_uses_credits: Atomic<bool>,
    /// The peer has asked for an acknowledgement.
    pub(super) ack_wanted: Atomic<bool>,
    /// The last acknowledgement of the peer that was news.
    pub(super) acked: Atomic<u64>,
    /// Messages that were acknowledged and dropped since a run of frames began.
    pub(super) acked_in_run: Atomic<usize>,
    /// The sequence of the last message that was delivered: what headers acknowledge.
    pub(super) ack: Atomic<u64>,
    /// The state of the machine, for those who only look.
    pub(super) state: Atomic<u32>,
    #[pin]
    pub(super) worker: Mutex<Worker>,
    /// The latest request of the peer that the worker has not seen.
    #[pin]
    pub(super) request: SpinLockBh<Option<KBox<dyn Request>>>,
    /// How many of our requests the peer has refused since the connection was up.
    pub(super) refusals: Atomic<u32>,
    /// The users whose operations the peer has refused.
    #[pin]
    pub(crate) offenders: Offenders,
    /// There is something to send.
    pub(super) wanted: Flag,
    /// No message goes either way.
    pub(super) idle: Flag,
    /// A program wants the connection to be made anew.
    pub(super) reset: Flag,
    /// The connection ends for good: the module goes away, or nobody needs it. In the latter case set with
    /// `tx` and `request` locked, and down.
    pub(super) stop: Atomic<bool>,
    /// When the timer that runs is due, in nanoseconds; 0 if none runs.
    pub(super) deadline: Atomic<u64>,
    #[pin]
    pub(super) work: Work<Connection, 0>,
    #[pin]
    pub(super) timer: DelayedWork<Connection, 1>,
    /// Takes the messages of closed sockets out of the queues.
    #[pin]
    pub(super) sweep: DelayedWork<Connection, 2>,
    /// Of who goes through the queues and takes messages out of their midst.
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
            .ib
            .as_ref()
            .map_or_else(FragmentSize::default, |ib| ib.fragment());
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
                tx <- new_spinlock_bh!(
                    Tx {
                        queue: queue,
                        link: None,
                        rest: None,
                        times_up: 0,
                        times_searched: 0,
                        idle_tracker: IdleTracker::new(),
                        silence: Silence::new(),
                        asking: None,
                    },
                    "Connection::tx"
                ),
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
                offenders <- Offenders::new(),
                wanted: Flag::new(),
                idle: Flag::new(),
                reset: Flag::new(),
                stop: Atomic::new(false),
                deadline: Atomic::new(0),
                work <- kernel::new_work!("Connection::work"),
                timer <- kernel::new_delayed_work!("Connection::timer"),
                sweep <- kernel::new_delayed_work!("Connection::sweep"),
                cancel_lock <- kernel::new_mutex!((), "Connection::cancel_lock"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether our address is the lower of the two: it settles who connects.
    pub(crate) fn is_lower(&self) -> bool {
        self.key.laddr < self.key.faddr
    }

    /// The peer itself, not its CM, has refused a request of ours. Any context.
    pub(crate) fn note_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    /// How many of our requests the peer has refused since the connection was up. Any context.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals.load(Relaxed)
    }

    /// Whether a port of the peer takes nothing for now. Any context.
    #[inline]
    pub(crate) fn is_congested(&self, port: u16) -> bool {
        self.remote.is_congested(port)
    }

    /// Whether the peer takes several messages in a frame. Any context.
    #[inline]
    pub(crate) fn peer_accepts_packed(&self) -> bool {
        self.peer_accepts_packed.peek()
    }

    /// The acknowledgement for the header of whatever is sent next.
    #[inline]
    pub(crate) fn ack(&self) -> u64 {
        self.ack.peek()
    }

    /// Where the memory of messages comes from. Any context.
    #[inline]
    pub(super) fn pools(&self) -> &Pools {
        self.pools.get()
    }

    /// From now on messages go through a device with these pools. Fails with ENOMEM. Process context.
    pub(crate) fn set_pools(&self, pools: &Arc<Pools>) -> Result {
        self.pools.set(pools)
    }

    /// Has the next endpoint take the smallest fragments, as there is no memory in larger pieces. Any
    /// context.
    pub(crate) fn note_lack_of_large_pieces(&self) {
        self.lacks_large_pieces.store(true, Relaxed);
    }

    /// The largest fragments that an endpoint proposes or agrees to, if `wanted` are those of its
    /// device or peer. Any context.
    pub(crate) fn largest_fragments(&self, wanted: FragmentSize) -> FragmentSize {
        if self.lacks_large_pieces.load(Relaxed) {
            FragmentSize::K4
        } else {
            wanted
        }
    }

    /// What a message of `len` bytes takes of memory, in bytes.
    pub(crate) fn cost_of_message(&self, len: u32) -> usize {
        Message::cost(len, FragmentSize::at_most(self.fragment.peek()))
    }

    /// A message of a system call, for [`Self::send`]. Fails with EFAULT or ENOMEM. May sleep.
    pub(crate) fn message_from_user(
        &self,
        (sport, dport): (u16, u16),
        msg: &mut SendMsg<'_>,
        len: u32,
        ops: MsgOps,
        charge: Option<SndbufCharge>,
    ) -> Result<Item<Message>> {
        let cut = FragmentSize::at_most(self.fragment.peek());
        let ports = (sport, dport);
        let message = Message::from_user(self.pools(), cut, ports, msg, len, ops, charge)?;
        self.node.stats.add(Counter::CopyFromUser, len as usize);
        Ok(message)
    }

    /// Queues a message, and posts what it can. Gives the message back if the connection has ended: there
    /// is another one for the same addresses, or may be. Any context but a hard interrupt.
    pub(crate) fn send(self: &Arc<Self>, message: Item<Message>) -> Result<(), Item<Message>> {
        let tx = self.tx.lock();
        if self.has_ended() {
            return Err(message);
        }
        let up = tx.link.is_some();
        self.queue_and_unlock(tx, message);
        if !up {
            self.want();
        }
        Ok(())
    }

    /// Queues a message, and posts what it can.
    #[inline]
    pub(super) fn queue_and_unlock(
        &self,
        mut tx: SpinLockBhGuard<'_, Tx>,
        mut message: Item<Message>,
    ) {
        let sequence = tx.queue.state.assign(message.sport);
        message.queue(sequence);
        tx.queue.push(message);
        self.transmit_and_unlock(tx);
        self.node.stats.inc(Counter::SendQueued);
    }

    /// Sends `count` pings whose answers nobody reads, if the connection is up and idle. Any context but
    /// a hard interrupt.
    ///
    /// Not to C RDS: it takes a ping from this port for the question of RDS over TCP, and warns.
    pub(crate) fn probe(self: &Arc<Self>, count: u32) {
        if !self.rx.lock().peer_is_like_us() {
            return;
        }
        for _ in 0..count {
            let tx = self.tx.lock();
            let idle = tx.link.is_some() && tx.queue.unsent.is_empty();
            drop(tx);
            if !idle {
                return;
            }
            let Ok(ping) = Message::empty(self.pools(), PROBE_PORT, PING_PORT) else {
                return;
            };
            if self.send(ping).is_err() {
                return;
            }
            self.node.stats.inc(Counter::SendProbe);
        }
    }

    /// There is room to post again, or something new to post. Any context but a hard interrupt.
    pub(crate) fn resume(&self) {
        self.transmit_and_unlock(self.tx.lock());
    }

    /// Posts what it can, and drops without the lock what that has finished. Any context but a hard interrupt.
    pub(super) fn transmit_and_unlock(&self, mut tx: SpinLockBhGuard<'_, Tx>) {
        tx.transmit(self);
        Self::unlock(tx);
    }

    /// Drops what is finished when the lock is released.
    fn unlock(mut tx: SpinLockBhGuard<'_, Tx>) {
        if tx.queue.finished.is_empty() {
            return;
        }
        let mut finished = Fifo::new();
        finished.append(&mut tx.queue.finished);
        drop(tx);
        drop(finished);
    }

    /// Sends the acknowledgement that the peer asked for, if it did since the last call. The transport
    /// calls it after a run of frames. Any context but a hard interrupt.
    pub(crate) fn flush_ack(&self) {
        if self.acked_in_run.peek() != 0 {
            self.acked_in_run.store(0, Relaxed);
        }
        if !self.ack_wanted.peek() || !self.ack_wanted.xchg(false, Full) {
            return;
        }
        let mut tx = self.tx.lock();
        tx.queue.ack_due = true;
        tx.transmit(self);
        let delayed = tx.queue.ack_due;
        Self::unlock(tx);
        if delayed {
            self.node.stats.inc(Counter::IbAckSendDelayed);
        }
    }

    /// Sends a header without a message if the connection is up. Any context but a hard interrupt.
    pub(crate) fn send_header(&self) {
        let mut tx = self.tx.lock();
        if tx.link.is_some() {
            tx.queue.ack_due = true;
            self.transmit_and_unlock(tx);
        }
    }

    /// Sends this node's congestion map. False if none is queued for that: one waits already that will say the same, or
    /// the connection is not up, and begins with one. Any context but a hard interrupt.
    pub(crate) fn send_congestion_map(&self) -> bool {
        let mut tx = self.tx.lock();
        if tx.link.is_none() {
            return false;
        }
        let queue = &mut tx.queue;
        let queued = match queue.cong_left {
            0 => {
                queue.cong_left = CONG_MAP_BYTES;
                true
            }
            CONG_MAP_BYTES => false,
            // It is half out.
            _ => !core::mem::replace(&mut queue.cong_again, true),
        };
        self.transmit_and_unlock(tx);
        queued
    }

    /// Traces that `what` has failed by which this ends or does not come up; `code` says why: abi.md has what it means.
    /// Any context.
    #[cold]
    pub(crate) fn note_error(&self, what: &str, code: i32) {
        trace::error(&self.key.traced(), what, code);
    }

    /// The same, where an error says why. Any context.
    #[cold]
    pub(crate) fn note_failure(&self, what: &str, why: impl Into<Error>) {
        self.note_error(what, why.into().to_errno());
    }

    /// Counts and traces messages or frames that are dropped, if there are any. Any context.
    #[cold]
    pub(crate) fn note_drop(&self, reason: Counter, count: usize) {
        if count > 0 {
            self.node.stats.add(reason, count);
            trace::dropped(&self.key.traced(), reason.name(), count);
        }
    }
}
