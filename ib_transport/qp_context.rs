// SPDX-License-Identifier: GPL-2.0

//! Per-QP context: the state of an endpoint that its completions use.
//!
//! # Operation
//!
//! Completions run in softirq and must not sleep. If transmission finds no buffer, or a check is
//! due, they set a flag here and schedule the worker of the device. That makes room in the pool and
//! resumes the transmission, and checks for missing completions.
//!
//! # Ownership
//!
//! The queue pair owns the context, and keeps the connection and the device alive with it. The
//! context owns no buffer. A posted one belongs to the queue pair until it completes. A device
//! keeps the buffers of unsignaled sends until a later send completes. So [`QpContext::make_room`]
//! and the watchdog send a header that reports its completion.
//!
//! # Errors
//!
//! Each error marks the endpoint as lost, and the worker of the connection drops it. Nothing is
//! dropped here, because that sleeps. Transmission without a buffer is retried for a while; then
//! the next endpoint uses small fragments, for which memory is found more easily.

use super::{
    device::Device,
    endpoint_shared::EndpointShared, //
};
use crate::{
    conn::{
        Connection,
        EndpointEvent, //
    },
    kapi::{
        errno::Errno,
        print::pr_warn_ratelimited,
        rdma::{
            Qp,
            QpConfig, //
        },
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
        time, //
    },
    proto::{
        completion_watchdog::{
            CompletionWatchdog,
            CqSnapshot,
            WatchdogDecision,
            WatchdogTimeout, //
        },
        info::RdmaPath,
        starvation::SendCheck,
        wire::FragmentSize, //
    },
    recv_pool::{
        Context,
        GrowError, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    }, //
};

/// Context of an endpoint's queue pair.
#[pin_data]
pub(super) struct QpContext {
    pub(super) connection: Arc<Connection>,
    pub(super) shared: Arc<EndpointShared>,
    pub(super) device: Arc<Device>,
    pub(super) config: QpConfig,
    /// Path of the messages, once the connection is established.
    pub(super) path: SetOnce<RdmaPath>,
    /// Flow control: the peer was or will be offered receives, and is granted more.
    pub(super) controlled: bool,
    /// Time that the device has to report operations once the peer has disconnected.
    answer_timeout_ms: u32,
    /// The device has had that time.
    answers_awaited: Atomic<bool>,
    /// A transmission waits for room or for frames in flight. A completed send resumes it.
    pub(super) blocked: Atomic<bool>,
    /// A frame has arrived.
    pub(super) receiving: Atomic<bool>,
    /// The worker has to check the endpoint before the period ends.
    pub(super) needs_service: Atomic<bool>,
    /// Payload bytes, and at least 1, of the buffer that transmission waits for. 0 without one.
    wanted: Atomic<u32>,
    /// State of the watchdog for missing completions.
    #[pin]
    watchdog: SpinLockBh<CompletionWatchdog>,
}

impl QpContext {
    pub(super) fn new(
        connection: Arc<Connection>,
        shared: Arc<EndpointShared>,
        device: Arc<Device>,
        config: QpConfig,
        controlled: bool,
        answer_timeout_ms: u32,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            connection,
            shared,
            device,
            config,
            path: SetOnce::new(),
            controlled,
            answer_timeout_ms,
            answers_awaited: Atomic::new(false),
            blocked: Atomic::new(false),
            receiving: Atomic::new(false),
            needs_service: Atomic::new(false),
            wanted: Atomic::new(0),
            watchdog <- new_spinlock_bh!(CompletionWatchdog::new(), "QpContext::watchdog"),
        })
    }

    /// Returns `true` if the peer may have missed the first frame. A passive side whose device
    /// (soft-iWARP) had not taken over the socket yet handles that frame with the next one.
    pub(super) fn is_awaiting_first_frame(&self) -> bool {
        self.device.caps.active_side_first
            && !self.shared.is_passive()
            && !self.receiving.read_once()
    }

    /// Waits once for the device's reports of operations if the peer has disconnected. Sleeps.
    ///
    /// A peer that refuses an operation ends the connection. Its disconnect may be handled before
    /// its answer to the operation, which has arrived earlier. The end of the queue pair would
    /// discard the answer.
    pub(super) fn await_answers(qp: &Qp<Self>) {
        let this = qp.handler();
        if this.answer_timeout_ms > 0
            && this.shared.peer_has_gone()
            && !this.answers_awaited.xchg(true, Full)
        {
            qp.await_operations(this.answer_timeout_ms);
        }
    }

    /// Returns `true` if the worker has to check the endpoint now. Any context.
    pub(super) fn needs_service(&self) -> bool {
        self.needs_service.read_once()
    }

    /// Requests a check of the endpoint after a short delay. Any context.
    pub(super) fn service_soon(&self) {
        self.needs_service.store(true, Relaxed);
        self.device.service_soon();
    }

    /// Requests a buffer for `len` bytes of payload. The worker makes room for it, and resumes
    /// transmission. Any context.
    pub(super) fn await_buffer(&self, len: u32) {
        // Called with `Path::tx` held, so no other length is stored meanwhile.
        if len.max(1) > self.wanted.load(Relaxed) {
            self.wanted.store(len.max(1), Relaxed);
        }
        self.service_soon();
    }

    /// Makes room for the buffer that transmission waits for. May sleep.
    ///
    /// A transmission that is resumed without a buffer requests it again. If there is memory only
    /// in small pieces, the connection is given up after a while.
    pub(super) fn make_room(qp: &Qp<Self>) {
        const SMALL: FragmentSize = FragmentSize::K4;
        let this = qp.handler();
        let len = this.wanted.xchg(0, Full);
        let room = match len {
            0 => Ok(()),
            len => this.device.pools.make_room(len, Context::Worker),
        };
        let is_short = matches!(room, Err(GrowError::NoMemory | GrowError::Exhausted));
        let is_large = len > SMALL.bytes() && this.shared.fragment() != SMALL;
        if !is_short || !is_large {
            qp.with_poll(|ring| ring.send_starvation.end());
            return;
        }
        let frames = this.connection.path.payload_frames();
        let (now, progress) = (time::monotonic_ns(), qp.send_progress());
        let check = SendCheck {
            frames,
            posted: progress.posted,
            done: progress.done,
            due: progress.due,
        };
        let lasts = qp.with_poll(|ring| ring.send_starvation.wait(now, check));
        if lasts && !this.shared.progress.has_ended() && this.device.may_give_up(now, true) {
            this.give_up_for_memory("send memory", ENOMEM);
        } else if !progress.due && progress.done < progress.posted {
            // The device keeps buffers of sends that do not report their completion.
            this.send_something(qp);
        }
    }

    /// Requests a check of the endpoint at once. Any context.
    pub(super) fn service_now(&self) {
        self.needs_service.store(true, Relaxed);
        self.device.service_now();
    }

    /// Marks the endpoint as lost. Any context.
    pub(super) fn fail(&self) {
        self.shared.note(EndpointEvent::Lost);
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
        if self.shared.fragment() != FragmentSize::K4 {
            self.connection.path.note_lack_of_large_pieces();
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
    pub(super) fn advertise_posted(&self, count: u32, all: u32) {
        if count > 0 {
            trace::recv_posted(|| self.connection.key.traced(), count, all);
        }
        if self.controlled {
            self.connection.posted(count, all);
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
            WatchdogDecision::Kick => {
                stats.inc(Counter::IbTxWatchdogKick);
                this.send_something(qp);
            }
            WatchdogDecision::GiveUp => {
                pr_warn_ratelimited!(
                    this.connection.log_limit,
                    "{}: no completion of posted sends: dropping the connection\n",
                    this.connection.key
                );
                this.give_up_sending("completion timeout");
            }
        }
    }
}
