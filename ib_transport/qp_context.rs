// SPDX-License-Identifier: GPL-2.0

//! What a queue pair works with: its receive ring, and where its completions go.

use super::{
    device::Device,
    endpoint::{EndpointShared, RNR_TIMER},
};
use crate::conn::{Connection, Counter, Reached};
use crate::kapi::{
    errno::Errno,
    print::{may_print, pr_info_ratelimited, pr_warn_ratelimited, About},
    rdma::{Failure, Qp, QpConfig, QpEvent, QpHandler, Received, RnrTimer},
    sync::{new_spinlock_bh, Peek, SpinLockBh},
    time,
};
use crate::msg::Owner;
use crate::proto::{
    completion_watchdog::{CompletionWatchdog, CqSnapshot, WatchdogDecision, WatchdogTimeout},
    info::RdmaPath,
    recv_depth::RecvDepth,
    wire::FragmentSize,
};
use crate::recv_pool::{Batch, Context, GrowError};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, SetOnce,
    },
};

/// Receives posted for a connection that is new or idle, unless more are wanted: what one shard of the pool holds if
/// fragments are small, and two if they are not.
const fn first_depth(size: FragmentSize) -> u32 {
    match size {
        FragmentSize::K4 => 15,
        FragmentSize::K8 => 14,
        FragmentSize::K16 => 6,
    }
}

/// The most memory that a receive ring may have posted, in bytes of payload.
const MAX_RING_BYTES: u32 = 4 << 20;

/// The most pings in a period that make the receive ring of an idle connection smaller.
const MAX_PROBES: u32 = 64;

/// How long nothing may be posted, in nanoseconds, before a connection is given up for the memory that
/// its message keeps, and before it is because the next one can do with less: see
/// [`Device::may_give_up_one`]. That readers read may take a while.
const PATIENCE: u64 = 1_000_000_000;
const LONG_PATIENCE: u64 = 30 * PATIENCE;

/// How often the peer hears meanwhile that we live, in nanoseconds: it cannot be answered.
const SIGN_OF_LIFE: u64 = 1_000_000_000;

/// How long a peer waits if there is nothing to post: as long as it takes us to look again. To send
/// again and again would only cost both of us time.
const STARVED_TIMER: RnrTimer = RnrTimer::Milliseconds20;

/// How deep the receive ring is.
pub(super) struct RecvRingPolicy {
    depth: RecvDepth,
    /// Buffers that can be posted again.
    spare: Batch,
    /// Since when the ring is empty for want of buffers, in nanoseconds; 0 if it is not.
    starved_since: u64,
    /// When the peer last heard of us meanwhile, in nanoseconds.
    told: u64,
    /// The peer was told to wait longer when it finds no receive.
    rnr_timer_raised: bool,
}

/// Why not even one receive is posted.
pub(super) enum FillError {
    /// The pool is at its limit: there are buffers again when readers have read, or when another ring
    /// needs fewer.
    Limit,
    /// Memory is short, maybe only in pieces as large as the fragments need.
    NoMemory,
    Failed(Error),
}

impl From<Error> for FillError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<GrowError> for FillError {
    fn from(error: GrowError) -> Self {
        match error {
            GrowError::Limit => Self::Limit,
            GrowError::NoMemory => Self::NoMemory,
            GrowError::Revoked => Self::Failed(ENODEV),
        }
    }
}

impl From<FillError> for Error {
    fn from(why: FillError) -> Error {
        match why {
            FillError::Limit | FillError::NoMemory => ENOMEM,
            FillError::Failed(error) => error,
        }
    }
}

/// When a connection is to be looked at again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextCheck {
    /// Not unless it asks for it.
    Done,
    AtNextPeriod,
    /// In a moment: it has nothing posted, and there may be memory then, or its peer may have to be
    /// sent something.
    Soon,
}

/// What an endpoint's queue pair works with.
#[pin_data]
pub(super) struct QpContext {
    connection: Arc<Connection>,
    pub(super) events: Arc<EndpointShared>,
    pub(super) device: Arc<Device>,
    pub(super) config: QpConfig,
    /// What messages go through, once the connection is established.
    pub(super) path: SetOnce<RdmaPath>,
    /// The peer was or will be offered receives, and is told of more.
    pub(super) controlled: bool,
    /// Something waits for room, or for frames in flight: it goes on when a send is done.
    pub(super) blocked: Atomic<bool>,
    /// A frame has arrived.
    receiving: Atomic<bool>,
    /// It has to be looked after before the period ends.
    asks: Atomic<bool>,
    /// What is known of completions that do not come.
    #[pin]
    watchdog: SpinLockBh<CompletionWatchdog>,
}

impl RecvRingPolicy {
    /// A ring for fragments of `size` that has room for `slots` receives, of which `least` are always to be posted, as
    /// far as it may be as deep.
    pub(super) fn new(size: FragmentSize, slots: u32, least: u32) -> Self {
        let most = slots.min(MAX_RING_BYTES / size.bytes());
        Self {
            depth: RecvDepth::new(first_depth(size).max(least), most),
            spare: Batch::new(),
            starved_since: 0,
            told: 0,
            rnr_timer_raised: false,
        }
    }

    /// How many frames have arrived, modulo 2^32, and whether none can.
    pub(super) fn heard(&self) -> (u32, bool) {
        (self.depth.arrived(), self.starved_since != 0)
    }

    fn note_posted(&mut self, count: u32) {
        self.depth.add(count);
        if count > 0 {
            self.starved_since = 0;
        }
    }

    /// Posts what is spare, and more from the pool, until the ring is as deep as it should be. In
    /// the end fewer may be posted: fails with ENOMEM if memory is short, or as the device does.
    fn refill(&mut self, qp: &Qp<QpContext>) -> Result {
        let context = qp.handler();
        while self.depth.missing() > 0 {
            let wanted = (self.depth.missing() as usize)
                .min(Batch::MAX)
                .saturating_sub(self.spare.len());
            let pool = context.device.pools.recv(context.events.fragment());
            // If there is none, what is spare may do.
            let _ = pool.alloc_many(wanted, Context::Atomic, &mut self.spare);
            let posted = qp.post_recv(&mut self.spare)?;
            if posted == 0 {
                context.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return Err(ENOMEM);
            }
            self.note_posted(posted);
            context.tell_posted(posted, self.depth.posted());
        }
        Ok(())
    }
}

impl QpContext {
    pub(super) fn new(
        connection: Arc<Connection>,
        events: Arc<EndpointShared>,
        device: Arc<Device>,
        config: QpConfig,
        controlled: bool,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            connection,
            events,
            device,
            config,
            path: SetOnce::new(),
            controlled,
            blocked: Atomic::new(false),
            receiving: Atomic::new(false),
            asks: Atomic::new(false),
            watchdog <- new_spinlock_bh!(CompletionWatchdog::new(), "QpContext::watchdog"),
        })
    }

    /// Whether the peer may not have seen our first frame: a passive side whose device had not taken
    /// over the socket when it came (soft-iWARP) sees it with the next one.
    pub(super) fn is_awaiting_first_frame(&self) -> bool {
        self.device.caps.active_side_first && !self.events.is_passive() && !self.receiving.peek()
    }

    /// Whether it has to be looked after now. Any context.
    pub(super) fn asks(&self) -> bool {
        self.asks.peek()
    }

    /// Has the endpoint looked after in a moment. Any context.
    pub(super) fn tend_soon(&self) {
        self.asks.store(true, Relaxed);
        self.device.tend_soon();
    }

    /// Has the endpoint looked after at once. Any context.
    fn tend_now(&self) {
        self.asks.store(true, Relaxed);
        self.device.tend_now();
    }

    /// The endpoint can do nothing any more. Any context.
    pub(super) fn fail(&self) {
        self.events.note(Reached::Lost);
    }

    /// The same, where nothing else tells of the reason. Any context.
    #[cold]
    pub(super) fn give_up(&self, what: &str, error: Error) {
        self.connection.note_failure(what, error);
        self.fail();
    }

    /// The same, as a buffer cannot be had. Memory may only be short in large pieces: the next endpoint
    /// takes small ones. Any context.
    #[cold]
    pub(super) fn give_up_for_memory(&self, what: &str, error: Error) {
        if self.events.fragment() != FragmentSize::K4 {
            self.connection.note_lack_of_large_pieces();
        }
        self.give_up(what, error);
    }

    /// The same, as nothing that is posted comes to its end. Any context.
    #[cold]
    pub(super) fn give_up_sending(&self, what: &str) {
        self.connection.node.stats.inc(Counter::IbTxWatchdogTimeout);
        self.give_up(what, Errno::TimedOut.into());
    }

    /// `count` receives were posted, and now there are `all`. Any context but a hard interrupt.
    fn tell_posted(&self, count: u32, all: u32) {
        if self.controlled {
            self.connection.posted(count, all);
        }
    }

    /// Posts receives until the ring is as deep as it should be, or memory is short. May sleep.
    ///
    /// Fails if there is not even one: nothing would ever complete then. Returns whether the ring is as
    /// deep as it should be.
    pub(super) fn fill(qp: &Qp<Self>) -> Result<bool, FillError> {
        let this = qp.handler();
        loop {
            let (missing, posted) =
                qp.with_poll(|ring| (ring.depth.missing(), ring.depth.posted()));
            if missing == 0 {
                return Ok(true);
            }
            let mut batch = Batch::new();
            let pool = this.device.pools.recv(this.events.fragment());
            let found = pool.alloc_many(missing as usize, Context::MaySleep, &mut batch);
            if let Err(why) = found {
                this.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return if posted > 0 {
                    Ok(false)
                } else {
                    Err(why.into())
                };
            }
            qp.with_poll(|ring| -> Result {
                let posted = qp.post_recv(&mut batch)?;
                ring.note_posted(posted);
                // Not later, when another endpoint may have begun to count.
                this.tell_posted(posted, ring.depth.posted());
                Ok(())
            })?;
        }
    }

    /// Looks after the ring: refills it if that did not go in a softirq, and at the end of a period
    /// judges its depth. May sleep.
    pub(super) fn service_ring(qp: &Qp<Self>, period_ends: bool) -> NextCheck {
        let this = qp.handler();
        // Before anything is looked at: who asks from here on is looked after again.
        this.asks.xchg(false, Full);
        let tended = Self::look_after(qp, period_ends);
        if tended == NextCheck::Soon {
            this.asks.store(true, Relaxed);
        }
        tended
    }

    fn look_after(qp: &Qp<Self>, period_ends: bool) -> NextCheck {
        let this = qp.handler();
        let stats = &this.connection.node.stats;
        // Something may have found no memory.
        this.connection.resume();
        if period_ends {
            let decision = qp.with_poll(|ring| {
                let decision = ring.depth.end_period(MAX_PROBES);
                if decision.shrank {
                    // Nothing is posted before the rest has gone, so this is not to hang on it.
                    this.tell_posted(0, ring.depth.depth().min(ring.depth.posted()));
                }
                decision
            });
            stats.add(Counter::IbRxRingShrunk, decision.shrank.into());
            this.connection.probe(decision.ask);
        }
        if qp.with_poll(|ring| ring.depth.is_low()) {
            stats.inc(Counter::IbRxRefillFromThread);
            match Self::fill(qp) {
                // With flow control the peer stops before the ring is empty, and nobody else tries again.
                Ok(false) if this.controlled => {
                    let posted = qp.with_poll(|ring| ring.depth.posted());
                    this.tell_posted(0, posted);
                    return if posted <= 1 {
                        Self::on_ring_empty(qp)
                    } else {
                        NextCheck::Soon
                    };
                }
                Ok(_) => {}
                Err(FillError::NoMemory) if this.events.fragment() != FragmentSize::K4 => {
                    stats.inc(Counter::IbRxRingEmpty);
                    this.give_up_for_memory("no receives", ENOMEM);
                }
                Err(FillError::Limit | FillError::NoMemory) => return Self::on_ring_empty(qp),
                // It is being closed.
                Err(FillError::Failed(error)) if error == Errno::NotConnected.into() => {}
                Err(FillError::Failed(error)) => this.give_up("no receives", error),
            }
        }
        if qp.with_poll(|ring| core::mem::take(&mut ring.rnr_timer_raised)) {
            // If it fails the peer only waits longer than it needs to.
            let _ = qp.set_rnr_timer(RNR_TIMER);
        }
        if this.is_awaiting_first_frame() {
            // It may not be up yet.
            this.connection.send_header();
            NextCheck::Soon
        } else if qp.with_poll(|ring| ring.depth.is_small()) {
            NextCheck::Done
        } else {
            NextCheck::AtNextPeriod
        }
    }

    /// Has the device send something, and report that. If there is no room for it, it goes when there is, or the connection
    /// is given up. Any context but a hard interrupt.
    pub(super) fn send_something(&self, qp: &Qp<Self>) {
        qp.report_next();
        self.connection.send_header();
    }

    /// Sees to it that the end of what was posted is known in bounded time, also if the device loses a completion. Any
    /// context but a hard interrupt.
    pub(super) fn check_progress(qp: &Qp<Self>, timeout: WatchdogTimeout) {
        let this = qp.handler();
        let progress = qp.send_progress();
        let snapshot = CqSnapshot {
            done: progress.done,
            due: progress.due,
        };
        let now = time::monotonic_ns();
        let decision = this.watchdog.lock().check(snapshot, now, timeout);
        let stats = &this.connection.node.stats;
        match decision {
            WatchdogDecision::Wait => {}
            WatchdogDecision::Ask => {
                stats.inc(Counter::IbTxWatchdogKick);
                this.send_something(qp);
            }
            WatchdogDecision::GiveUp => {
                pr_warn_ratelimited!(
                    "{}: the device does not report what was sent: giving the connection up\n",
                    this.connection.key
                );
                this.give_up_sending("no report");
            }
        }
    }

    /// Nothing is posted, or the one that flow control keeps, and there is nothing to post: the peer waits.
    /// Unless something is sent no one else would try again.
    ///
    /// A message that has arrived in part keeps its memory until the rest has come. Where all memory is
    /// kept like this, one of these messages has to go, with its connection, and comes again. And if the
    /// receives of idle connections have all memory, the next connection takes small ones, which come
    /// from another pool.
    fn on_ring_empty(qp: &Qp<Self>) -> NextCheck {
        let this = qp.handler();
        let stats = &this.connection.node.stats;
        stats.inc(Counter::IbRxRingEmpty);
        let now = time::monotonic_ns();
        let (since, tells) = qp.with_poll(|ring| {
            if ring.starved_since == 0 {
                ring.starved_since = now.max(1);
            }
            let tells = now.saturating_sub(ring.told) >= SIGN_OF_LIFE;
            if tells {
                ring.told = now;
            }
            (ring.starved_since, tells)
        });
        if tells {
            this.connection.send_header();
        }
        if this.device.caps.receiver_not_ready
            && !qp.with_poll(|ring| core::mem::replace(&mut ring.rnr_timer_raised, true))
        {
            // If it fails the peer only tries more often than it needs to, or is not there yet.
            let _ = qp.set_rnr_timer(STARVED_TIMER);
        }
        let timeout = if this.connection.in_reassembly() {
            Some(PATIENCE)
        } else if this.events.fragment() != FragmentSize::K4 {
            Some(LONG_PATIENCE)
        } else {
            None
        };
        let impatient = timeout.is_some_and(|timeout| now.saturating_sub(since) >= timeout);
        if impatient && this.device.may_give_up_one() {
            qp.with_poll(|ring| ring.starved_since = 0);
            stats.inc(Counter::IbRxStarvedDrop);
            pr_info_ratelimited!(
                "{}: giving the connection up for want of memory to receive\n",
                this.connection.key
            );
            this.give_up_for_memory("no receives", ENOMEM);
        }
        NextCheck::Soon
    }
}

impl QpHandler for QpContext {
    type Poll = RecvRingPolicy;

    fn received(&self, _qp: &Qp<Self>, ring: &mut RecvRingPolicy, message: Received) -> u32 {
        if !self.receiving.peek() {
            self.receiving.store(true, Relaxed);
            self.events.note_first_frame();
            if self.device.caps.active_side_first {
                // A read may have waited for it. Whoever looks after this has the lock after us.
                self.connection.resume();
            }
        }
        if ring.depth.arrive() {
            self.connection.node.stats.inc(Counter::IbRxRingGrown);
            self.device.tend_later();
        }
        let device = self.device.id;
        let Ok((buf, messages)) = self.connection.receive(message.buf, message.len, device) else {
            self.fail();
            return 1;
        };
        match buf {
            // What there is no room for goes back to the pool.
            // CAST: a batch is small.
            Some(buf) if ring.depth.wants_back(ring.spare.len() as u32) => {
                drop(ring.spare.push(buf));
            }
            buf => drop(buf),
        }
        messages
    }

    fn notified(&self) {
        self.connection.node.stats.inc(Counter::IbEvtHandlerCall);
    }

    fn sent(&self, _qp: &Qp<Self>, reports: usize) {
        self.connection
            .node
            .stats
            .add(Counter::IbTxCqEvent, reports);
        self.device.note_progress();
        if self.blocked.peek() && self.blocked.xchg(false, Full) {
            self.connection.resume();
        }
    }

    fn failed(&self, _qp: &Qp<Self>, failure: Failure) {
        let flushed = failure.status.is_flush();
        // Soft-RoCE flushes everything where it has no memory to send, and says nothing else.
        if !flushed || !self.events.progress.has_ended() {
            self.connection
                .note_error(failure.queue.name(), failure.status.number());
        }
        // What a program has posted hides nothing else.
        let about = match failure.refused {
            Some(_) => About::Attempt,
            None => About::Trouble,
        };
        if !flushed && may_print(about) {
            pr_info!(
                "{}: {:?} failed: {} (vendor error {:#x})\n",
                self.connection.key,
                failure.queue,
                failure.status.message(),
                failure.vendor_err
            );
        }
        if let Some(number) = failure.refused {
            let owner = Owner::from_number(number);
            self.connection.offenders.note(owner.user, owner.standing);
            self.events.note(Reached::Fault);
        } else {
            self.fail();
        }
    }

    fn misused(&self, opcode: u32) {
        let stats = &self.connection.node.stats;
        stats.inc(Counter::IbRxMisused);
        // CAST: small.
        self.connection.note_error("receive opcode", opcode as i32);
        pr_info_ratelimited!(
            "{}: the peer has used up a receive with no message (opcode {}): dropping the connection\n",
            self.connection.key,
            opcode
        );
        self.fail();
    }

    fn not_flushed(&self, error: Error) {
        self.connection.node.stats.inc(Counter::IbNotFlushed);
        self.connection.note_failure("flush", error);
        pr_warn_ratelimited!(
            "{}: the device did not flush a queue pair (error {}), which is destroyed as it is\n",
            self.connection.key,
            error.to_errno()
        );
    }

    fn polled(&self, qp: &Qp<Self>, ring: &mut RecvRingPolicy) {
        self.connection.flush_ack();
        let frames = ring.depth.end_run();
        if frames > 0 {
            self.connection
                .node
                .stats
                .add(Counter::IbRxCqEvent, frames as usize);
        }
        if !ring.depth.is_low() {
            return;
        }
        self.connection.node.stats.inc(Counter::IbRxRefillFromCq);
        if ring.refill(qp).is_err() {
            // Someone who can wait for memory finds more.
            self.tend_now();
        }
    }

    fn event(&self, _qp: &Qp<Self>, event: QpEvent) {
        if let QpEvent::Fatal(event) = event {
            self.connection.note_error("queue pair", event);
            self.fail();
        }
    }
}
