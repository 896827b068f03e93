// SPDX-License-Identifier: GPL-2.0

//! A path of a connection: a stream of messages each way, over one link after the other.
//!
//! The queues and sequence numbers of a path outlive its links. Its worker makes and drops its
//! endpoint, as the state machine of `proto::connect` decides.
//!
//! Each path is a `Connection` of its own, see `path_set`. Its work items are fields of that,
//! because an `Arc` of that type queues them.

use super::{
    event_mask::EventMask,
    key::ConnKey,
    recv_side::RecvSide,
    table::AttemptGroup,
    transport::{
        Endpoint,
        Link,
        Request, //
    },
    tx_lock::{
        SendSide,
        TxLock, //
    },
    tx_queue::TxQueue, //
};
use crate::{
    kapi::sync::{
        new_spinlock_bh,
        CacheAligned,
        Item,
        ReadOnce,
        SpinLockBh, //
    },
    msg::Message,
    proto::{
        attempts::AttemptPlace,
        connect::{
            Machine,
            State, //
        },
        idle::IdleTracker,
        info::RdmaPath,
        keepalive::Keepalive,
        mprds::{
            Handshake,
            HandshakeKind,
            Mprds, //
        },
        path_history::PathHistory,
        stall::Stall,
        tx::AckPolicy,
        wire::FragmentSize, //
    }, //
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
    }, //
};

/// The send queue, and the link that empties it while the connection is up.
#[repr(C)]
pub(super) struct Tx {
    pub(super) queue: TxQueue,
    pub(super) link: Option<Arc<dyn Link>>,
    /// The path of the last link, if nothing waited to be sent or acknowledged when it went down.
    /// Cleared by the next connection attempt.
    pub(super) idle_path: Option<RdmaPath>,
    /// Number of links that the connection has had.
    pub(super) times_up: u64,
    /// Time at which the last link came up, in nanoseconds of the monotonic clock.
    pub(super) up_since: u64,
    /// Value of `times_up` at the last search for operations lost with a queue pair.
    pub(super) times_searched: u64,
    /// State kept between idle checks.
    pub(super) idle_tracker: IdleTracker,
    /// State kept between keepalive checks.
    pub(super) keepalive: Keepalive,
    /// Sequence number of a keepalive that is in the queues.
    pub(super) keepalive_sequence: Option<u64>,
    /// Time without progress, as the keepalive checks see it.
    pub(super) stall: Stall,
    /// Sequence number of the last answer to a probe beyond the limits of pongs, or 0.
    pub(super) answer_sequence: u64,
    /// Times for the table of paths.
    pub(super) history: PathHistory,
}

impl SendSide for Tx {
    fn push(&mut self, message: Item<Message>) {
        self.queue.push(message);
    }
}

impl Tx {
    fn new(key: ConnKey, policy: AckPolicy) -> Self {
        Self {
            queue: TxQueue::new(key, policy),
            link: None,
            idle_path: None,
            times_up: 0,
            up_since: 0,
            times_searched: 0,
            idle_tracker: IdleTracker::new(),
            keepalive: Keepalive::new(),
            keepalive_sequence: None,
            stall: Stall::new(),
            answer_sequence: 0,
            history: PathHistory::new(),
        }
    }

    /// Returns `true` if messages wait for a link.
    pub(super) fn needs_link(&self) -> bool {
        self.link.is_none() && !self.queue.unsent.is_empty()
    }

    /// Returns `true` if messages wait to be sent or acknowledged. An unsent keepalive alone does
    /// not count.
    pub(super) fn is_pending(&self) -> bool {
        let TxQueue { unsent, sent, .. } = &self.queue;
        let is_keepalive = unsent.front().is_some_and(|first| first.is_keepalive);
        !sent.is_empty() || unsent.len() > usize::from(is_keepalive)
    }

    /// Returns the sequence number of the oldest message that waits to be sent or acknowledged.
    pub(super) fn oldest(&self) -> Option<u64> {
        let TxQueue { unsent, sent, .. } = &self.queue;
        let oldest = sent.front().or_else(|| unsent.front());
        oldest.map(|message| message.sequence)
    }
}

/// State that only the worker uses.
pub(super) struct Worker {
    pub(super) machine: Machine,
    pub(super) endpoint: Option<KBox<dyn Endpoint>>,
    /// An action failed, which the state machine has not been notified of.
    pub(super) failed: bool,
    /// The timer runs until this path asks again if it may be connected.
    pub(super) waits_for_first: bool,
    /// A failure was logged since the connection was last up.
    pub(super) attempt_logged: bool,
    /// Group for which the table of connections counts the attempt that is in progress, and its
    /// place there.
    pub(super) counted: Option<(AttemptGroup, AttemptPlace)>,
    /// Place of the same attempt in the quota of all network namespaces but the initial one.
    pub(super) charged: Option<AttemptPlace>,
    /// Group in which the table of connections counts this one as waiting for an attempt for its
    /// peer.
    pub(super) counted_waiting: Option<AttemptGroup>,
}

impl Worker {
    pub(super) const fn new() -> Self {
        Self {
            machine: Machine::new(),
            endpoint: None,
            failed: false,
            waits_for_first: false,
            attempt_logged: false,
            counted: None,
            charged: None,
            counted_waiting: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.machine.state() == State::Up
    }

    /// Returns `true` if the timer runs until the next attempt.
    pub(super) fn is_waiting(&self) -> bool {
        self.machine.state() == State::Waiting
    }

    /// Returns `true` if there is no connection and none is wanted.
    pub(super) fn is_down(&self) -> bool {
        self.machine.state() == State::Down
    }
}

/// An event of a path, apart from those of its endpoint.
#[derive(Clone, Copy)]
pub(super) enum PathEvent {
    /// The connection ends for good: the module or the network namespace ends, or the connection is
    /// forgotten. In the latter case it is down, and `tx` and `request` are locked when this is
    /// set. Nobody takes it.
    Stop,
    /// A program requests a reset of the connection.
    Reset,
    /// There is something to send.
    Wanted,
    /// The connection is idle: no message goes either way.
    Idle,
    /// A closed socket may have left messages to the sweep work, which takes this.
    Closed,
    /// The negotiation of paths has changed, or the next probe is due. Only of the first path.
    Negotiated,
    /// The first path has found that the peer has restarted. Only of the other ones.
    Restarted,
    /// This path may be allowed to connect now. Only of the other ones.
    Allowed,
    /// The peer takes this path for the first one. Only of the other ones.
    Misplaced,
    /// A new link makes the peer send its congestion map. Only of the other ones.
    MapWanted,
    /// The network namespace has no socket that uses the transport.
    Suspended,
}

impl PathEvent {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A path, see the module documentation.
///
/// # Context
///
/// The contexts are those of `Connection`.
#[pin_data]
pub(crate) struct Path {
    /// Payload bytes of a fragment: the size agreed on last, or the most likely one.
    pub(super) fragment: Atomic<u32>,
    /// The last endpoint found no memory in large pieces.
    pub(super) lacks_large_pieces: Atomic<bool>,
    #[pin]
    pub(super) tx: CacheAligned<TxLock<Tx>>,
    #[pin]
    pub(super) rx: SpinLockBh<RecvSide>,
    /// The peer broke a protocol rule, so no more frames are accepted from this endpoint.
    pub(super) rx_failed: Atomic<bool>,
    /// The peer has announced that it accepts packed frames.
    pub(super) peer_accepts_packed: Atomic<bool>,
    /// Credits in the peer's headers count: the endpoint uses flow control.
    pub(super) peer_uses_credits: Atomic<bool>,
    /// First failure of this endpoint, a number of `DropReason`. 0: none.
    pub(super) drop_reason: Atomic<u32>,
    /// The peer has asked for an acknowledgement.
    pub(super) ack_wanted: Atomic<bool>,
    /// The highest acknowledgement of the peer so far.
    pub(super) acked: Atomic<u64>,
    /// Buffers of the messages that were acknowledged and dropped since the current run of frames
    /// began.
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
    /// [`PathEvent`]s.
    events: EventMask,
    /// Expiry of the running timer, in nanoseconds of the monotonic clock. 0 if none runs.
    pub(super) deadline: Atomic<u64>,
    /// The peer may have something to send when there is no link, and not ask for one again.
    pub(super) peer_may_wait: Atomic<bool>,
    /// Time of the last request for programs that wait, on the monotonic clock, in nanoseconds.
    pub(super) wanted_for_waiting: Atomic<u64>,
    /// The peer has answered, see `Connection::note_answer`.
    pub(super) has_answered: Atomic<bool>,
    /// Serialises walks that remove messages from the middle of the queues.
    #[pin]
    pub(super) cancel_lock: Mutex<()>,
}

impl Path {
    /// Creates the path of the connection with this key.
    pub(super) fn new(
        key: ConnKey,
        policy: AckPolicy,
        fragment: FragmentSize,
        mprds: Option<Mprds>,
    ) -> impl PinInit<Self> {
        let tx = Tx::new(key, policy);
        pin_init!(Self {
            fragment: Atomic::new(fragment.bytes()),
            lacks_large_pieces: Atomic::new(false),
            tx <- CacheAligned::new(TxLock::new(tx)),
            rx <- new_spinlock_bh!(RecvSide::new(mprds), "Path::rx"),
            rx_failed: Atomic::new(false),
            peer_accepts_packed: Atomic::new(false),
            peer_uses_credits: Atomic::new(false),
            drop_reason: Atomic::new(0),
            ack_wanted: Atomic::new(false),
            acked: Atomic::new(0),
            acked_in_run: Atomic::new(0),
            ack: Atomic::new(0),
            state: Atomic::new(0),
            worker <- kernel::new_mutex!(Worker::new(), "Path::worker"),
            request <- new_spinlock_bh!(None, "Path::request"),
            events: EventMask::new(),
            deadline: Atomic::new(0),
            peer_may_wait: Atomic::new(false),
            wanted_for_waiting: Atomic::new(0),
            has_answered: Atomic::new(false),
            cancel_lock <- kernel::new_mutex!((), "Path::cancel_lock"),
        })
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

    /// Returns the payload bytes of a fragment: the size agreed on last, or the most likely one.
    #[inline]
    pub(super) fn fragment(&self) -> FragmentSize {
        FragmentSize::at_most(self.fragment.read_once())
    }

    /// Records an event. The caller then queues the work item that takes it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn set_event(&self, event: PathEvent) {
        self.events.set(event.bit());
    }

    /// Clears an event. Returns `true` if it was recorded since the last call.
    pub(super) fn take_event(&self, event: PathEvent) -> bool {
        self.events.take(event.bit())
    }

    /// Returns `true` if an event is recorded.
    pub(super) fn has_event(&self, event: PathEvent) -> bool {
        self.events.has(event.bit())
    }

    /// Returns `true` if the path takes no more messages: the connection was forgotten, or the
    /// module or the network namespace ends.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.has_event(PathEvent::Stop)
    }

    /// Returns the number of buffers that the current run of frames has dropped.
    #[cfg(rds_kunit)]
    pub(crate) fn acked_in_run(&self) -> usize {
        self.acked_in_run.read_once()
    }

    /// Returns the number of nanoseconds until the timer of the worker expires. 0 if it does not
    /// run.
    #[cfg(rds_kunit)]
    pub(crate) fn timer_left_ns(&self) -> u64 {
        let deadline = self.deadline.load(Relaxed);
        deadline.saturating_sub(crate::kapi::time::monotonic_ns())
    }

    /// Returns `true` if the timer of the worker runs.
    #[cfg(rds_kunit)]
    pub(crate) fn has_timer(&self) -> bool {
        self.deadline.load(Relaxed) != 0
    }

    /// Returns the number of messages that were sent and are not acknowledged.
    #[cfg(rds_kunit)]
    pub(crate) fn sent(&self) -> usize {
        self.tx.lock().queue.sent.len()
    }

    /// Removes a message that was sent, in one hold of the lock.
    #[cfg(rds_kunit)]
    pub(crate) fn remove_sent(&self, sequence: u64) {
        let mut gone = crate::kapi::sync::Fifo::new();
        let mut tx = self.tx.lock();
        tx.queue
            .sent
            .extract(|it| it.sequence == sequence, &mut gone);
        drop(tx);
    }

    /// Returns the maximum number of operations that one transmission has ended.
    #[cfg(rds_kunit)]
    pub(crate) fn most_ended(&self) -> u32 {
        self.tx.lock().queue.most_ended
    }

    /// Returns the number of frames with payload that were sent, modulo 2^32.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, without a lock that is below `Path::tx`.
    pub(crate) fn payload_frames(&self) -> u32 {
        self.tx.lock().queue.payload_frames
    }

    /// Returns `true` if there is a link.
    pub(super) fn is_linked(&self) -> bool {
        self.tx.lock().link.is_some()
    }

    /// Returns `true` if messages wait to be sent or acknowledged.
    pub(super) fn is_pending(&self) -> bool {
        self.tx.lock().is_pending()
    }

    /// Returns the content of a handshake that is being sent. `None` if the path is not over TCP.
    pub(super) fn handshake(&self, kind: HandshakeKind) -> Option<Handshake> {
        self.rx.lock().negotiation.send(kind)
    }

    /// Returns `true` if a message has arrived in part.
    pub(crate) fn in_reassembly(&self) -> bool {
        self.rx.lock().has_partial()
    }
}
