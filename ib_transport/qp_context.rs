// SPDX-License-Identifier: GPL-2.0

//! Per-QP context: receive ring and handlers of completions.
//!
//! A posted buffer belongs to the queue pair until its completion. A received one passes to the
//! connection, which returns it if nothing was kept of it. Softirqs refill the ring; the device's
//! worker does it when they find no memory. A failed completion ends the endpoint.

use super::{
    device::Device,
    endpoint::{EndpointShared, RNR_TIMER},
    recv_ring::RecvRingPolicy,
};
use crate::conn::{Connection, Counter, Reached, ReceiveError};
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

/// Maximum number of pings per period that shrink the receive ring of an idle connection.
const MAX_PROBES: u32 = 64;

/// Time in nanoseconds for which a ring may be starved while a partial message keeps memory. Then
/// the connection is given up, see [`Device::may_give_up_one`]. Readers may take a while.
const PATIENCE: u64 = 1_000_000_000;
/// The same if the next endpoint can use smaller fragments.
const LONG_PATIENCE: u64 = 30 * PATIENCE;

/// Interval in nanoseconds of headers to the peer while the ring is starved. The peer gets no
/// answers.
const SIGN_OF_LIFE: u64 = 1_000_000_000;

/// RNR timer while the ring is starved: the interval of the worker's checks. Earlier retries would
/// only cost both nodes time.
const STARVED_TIMER: RnrTimer = RnrTimer::Milliseconds20;

/// Reason why no receive could be posted.
pub(super) enum FillError {
    /// The pool is at its limit until readers free buffers or another ring shrinks.
    Limit,
    /// Memory is short, maybe only in pieces of the fragment size.
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

/// Time of the next check of a connection by the device's worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextCheck {
    /// Only when the connection requests it.
    Done,
    AtNextPeriod,
    /// After a short delay: nothing is posted, or the peer may have to be sent a header.
    Soon,
}

/// Context of an endpoint's queue pair.
#[pin_data]
pub(super) struct QpContext {
    pub(super) connection: Arc<Connection>,
    pub(super) events: Arc<EndpointShared>,
    pub(super) device: Arc<Device>,
    pub(super) config: QpConfig,
    /// Path of the messages, once the connection is established.
    pub(super) path: SetOnce<RdmaPath>,
    /// Flow control: the peer was or will be offered receives, and is granted more.
    pub(super) controlled: bool,
    /// A transmission waits for room or for frames in flight. A completed send resumes it.
    pub(super) blocked: Atomic<bool>,
    /// A frame has arrived.
    receiving: Atomic<bool>,
    /// The worker has to check the endpoint before the period ends.
    asks: Atomic<bool>,
    /// Payload bytes, and at least 1, of the buffer that transmission waits for. 0 without one.
    wanted: Atomic<u32>,
    /// State of the watchdog for missing completions.
    #[pin]
    watchdog: SpinLockBh<CompletionWatchdog>,
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
            wanted: Atomic::new(0),
            watchdog <- new_spinlock_bh!(CompletionWatchdog::new(), "QpContext::watchdog"),
        })
    }

    /// Returns `true` if the peer may have missed the first frame. A passive side whose device
    /// (soft-iWARP) had not taken over the socket yet handles that frame with the next one.
    pub(super) fn is_awaiting_first_frame(&self) -> bool {
        self.device.caps.active_side_first && !self.events.is_passive() && !self.receiving.peek()
    }

    /// Returns `true` if the worker has to check the endpoint now. Any context.
    pub(super) fn asks(&self) -> bool {
        self.asks.peek()
    }

    /// Requests a check of the endpoint after a short delay. Any context.
    pub(super) fn tend_soon(&self) {
        self.asks.store(true, Relaxed);
        self.device.tend_soon();
    }

    /// Requests a buffer for `len` bytes of payload. The worker makes room for it, and resumes
    /// transmission. Any context.
    pub(super) fn await_buffer(&self, len: u32) {
        // Called with the connection's queue locked, so no other length is stored meanwhile.
        if len.max(1) > self.wanted.load(Relaxed) {
            self.wanted.store(len.max(1), Relaxed);
        }
        self.tend_soon();
    }

    /// Makes room for the buffer that transmission waits for. May sleep.
    fn make_room(&self) {
        let len = self.wanted.xchg(0, Full);
        if len == 0 {
            return;
        }
        let room = self.device.pools.make_room(len);
        let lacks = room == Err(GrowError::NoMemory) && len > FragmentSize::K4.bytes();
        if lacks && !self.events.progress.has_ended() {
            self.give_up_for_memory("no buffer to send", ENOMEM);
        }
    }

    /// Requests a check of the endpoint at once. Any context.
    fn tend_now(&self) {
        self.asks.store(true, Relaxed);
        self.device.tend_now();
    }

    /// Marks the endpoint as lost. Any context.
    pub(super) fn fail(&self) {
        self.events.note(Reached::Lost);
    }

    /// Marks the endpoint as lost for a reason that is reported nowhere else. Any context.
    #[cold]
    pub(super) fn give_up(&self, what: &str, error: Error) {
        self.connection.note_failure(what, error);
        self.fail();
    }

    /// Marks the endpoint as lost because there is no buffer. Only large pieces of memory may be
    /// short, so the next endpoint uses small ones. Any context.
    #[cold]
    pub(super) fn give_up_for_memory(&self, what: &str, error: Error) {
        if self.events.fragment() != FragmentSize::K4 {
            self.connection.note_lack_of_large_pieces();
        }
        self.give_up(what, error);
    }

    /// Marks the endpoint as lost because posted sends do not complete. Any context.
    #[cold]
    pub(super) fn give_up_sending(&self, what: &str) {
        self.connection.node.stats.inc(Counter::IbTxWatchdogTimeout);
        self.give_up(what, Errno::TimedOut.into());
    }

    /// Records that `count` receives were posted, so that `all` are. Any context except hard
    /// interrupt.
    pub(super) fn tell_posted(&self, count: u32, all: u32) {
        if self.controlled {
            self.connection.posted(count, all);
        }
    }

    /// Posts receives until the ring has its depth or memory is short. Returns `true` if it has its
    /// depth. May sleep.
    ///
    /// # Errors
    ///
    /// - [`FillError`] if not even one is posted, so that nothing would ever complete.
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
                if posted == 0 {
                    return Err(why.into());
                }
                if qp.with_poll(|ring| ring.depth.lower(ring.usual)) {
                    continue;
                }
                return Ok(false);
            }
            qp.with_poll(|ring| -> Result {
                let posted = qp.post_recv(&mut batch)?;
                ring.note_posted(posted);
                // Not later: another endpoint may have reset the credits by then.
                this.tell_posted(posted, ring.depth.posted());
                Ok(())
            })?;
        }
    }

    /// Refills the ring if softirqs could not, and adapts its depth at the end of a period. May
    /// sleep.
    pub(super) fn service_ring(qp: &Qp<Self>, period_ends: bool) -> NextCheck {
        let this = qp.handler();
        // The next endpoint of the connection may have begun.
        if this.events.progress.has_ended() {
            return NextCheck::Done;
        }
        // Cleared before all checks, so that a later request causes another check.
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
        this.make_room();
        this.connection.resume();
        if qp.with_poll(|ring| ring.delayed.is_some()) {
            Self::show_life(qp);
            this.connection.fill_recv_reserve();
            qp.resume();
        }
        if period_ends {
            let decision = qp.with_poll(|ring| {
                let decision = ring.depth.end_period(MAX_PROBES);
                if decision.shrank {
                    // Nothing is posted before the surplus is used, so advertising must not wait
                    // for it.
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
                // With flow control the peer stops before the ring is empty. No frame of it causes
                // a refill.
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
                // The queue pair is being closed.
                Err(FillError::Failed(error)) if error == Errno::NotConnected.into() => {}
                Err(FillError::Failed(error)) => this.give_up("no receives", error),
            }
        }
        if qp.with_poll(|ring| core::mem::take(&mut ring.rnr_timer_raised)) {
            // After a failure the peer only waits longer than needed.
            let _ = qp.set_rnr_timer(RNR_TIMER);
        }
        if this.is_awaiting_first_frame() {
            // The connection may not be up yet; the next check sends the header then.
            this.connection.send_header();
            NextCheck::Soon
        } else if qp.with_poll(|ring| ring.depth.is_small()) {
            NextCheck::Done
        } else {
            NextCheck::AtNextPeriod
        }
    }

    /// Makes the device send a header and report its completion. If there is no room, the header
    /// waits, or the watchdog gives up the connection. Any context except hard interrupt.
    pub(super) fn send_something(&self, qp: &Qp<Self>) {
        qp.report_next();
        self.connection.send_header();
    }

    /// Checks for missing completions. Even if the device loses one, the end of posted sends is
    /// known in bounded time. Any context except hard interrupt.
    pub(super) fn check_progress(qp: &Qp<Self>, timeout: WatchdogTimeout) {
        let this = qp.handler();
        if qp.with_poll(|ring| ring.delayed.is_some()) {
            // Nothing is polled at present, so nothing is known of the device.
            return;
        }
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

    /// Sends a header now and then to a peer from which nothing is received, so that it knows that
    /// this node lives.
    fn show_life(qp: &Qp<Self>) {
        let now = time::monotonic_ns();
        let is_due = qp.with_poll(|ring| {
            let is_due = now.saturating_sub(ring.told) >= SIGN_OF_LIFE;
            if is_due {
                ring.told = now;
            }
            is_due
        });
        if is_due {
            qp.handler().connection.send_header();
        }
    }

    /// Handles a starved ring: at most the receive that flow control reserves is posted, and there
    /// are no buffers. The peer waits, so no frame causes a refill; the worker has to try again.
    ///
    /// A partial message keeps its memory until the rest has arrived. If such messages keep all
    /// memory, one of them has to go with its connection, and is sent again. If the receives of
    /// idle connections keep it, the next endpoint uses small fragments, which come from another
    /// pool.
    fn on_ring_empty(qp: &Qp<Self>) -> NextCheck {
        let this = qp.handler();
        let stats = &this.connection.node.stats;
        stats.inc(Counter::IbRxRingEmpty);
        let now = time::monotonic_ns();
        let since = qp.with_poll(|ring| {
            if ring.starved_since == 0 {
                ring.starved_since = now.max(1);
            }
            ring.starved_since
        });
        Self::show_life(qp);
        if this.device.caps.receiver_not_ready
            && !qp.with_poll(|ring| core::mem::replace(&mut ring.rnr_timer_raised, true))
        {
            // After a failure the peer only retries more often than needed, or the queue pair is
            // not connected yet.
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

    fn received(
        &self,
        _qp: &Qp<Self>,
        ring: &mut RecvRingPolicy,
        message: Received,
    ) -> Result<u32, Received> {
        if !self.receiving.peek() {
            self.receiving.store(true, Relaxed);
            self.events.note_first_frame();
            if self.device.caps.active_side_first {
                // A READ may wait for this. Transmitters that take the lock after `resume` see the
                // flag.
                self.connection.resume();
            }
        }
        let delayed = ring.delayed.take();
        if delayed.is_none() && ring.depth.arrive() {
            self.connection.node.stats.inc(Counter::IbRxRingGrown);
            self.device.tend_later();
        }
        let device = self.device.id;
        let Received { buf, len } = message;
        let (mut buf, mut parts) = (Some(buf), delayed.unwrap_or(0));
        let received = self.connection.receive(&mut buf, len, device, &mut parts);
        if let Err(error) = received {
            if let (ReceiveError::NoMemory, Some(buf)) = (error, buf) {
                ring.delayed = Some(parts);
                self.tend_soon();
                return Err(Received { buf, len });
            }
            self.fail();
            return Ok(1);
        }
        match buf {
            // Buffers that the ring does not need go back to the pool.
            // CAST: A batch is small.
            Some(buf) if ring.depth.wants_back(ring.spare.len() as u32) => {
                drop(ring.spare.push(buf));
            }
            buf => drop(buf),
        }
        Ok(parts)
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
        // Soft-RoCE flushes all requests if it has no memory to send, and reports nothing else.
        if !flushed || !self.events.progress.has_ended() {
            self.connection
                .note_error(failure.queue.name(), failure.status.number());
        }
        // Errors that programs cause have a rate limit of their own, and hide no others.
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
        // CAST: The number is small.
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
            // The device's worker can wait for memory.
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
