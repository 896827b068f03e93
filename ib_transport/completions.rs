// SPDX-License-Identifier: GPL-2.0

//! Handlers of a queue pair's completions and events, and its checks by the device.
//!
//! A posted buffer belongs to the queue pair until its completion. A received one passes to the
//! connection, which returns it if nothing was kept of it. A failed completion ends the endpoint.

use super::{
    endpoint_list::{
        EndpointQp,
        NextCheck, //
    },
    qp_context::QpContext,
    recv_ring::RecvRingPolicy,
    transmit::traced_op, //
};
use crate::{
    conn::{
        EndpointEvent,
        ReceiveError,
        RecvFrame, //
    },
    kapi::{
        print::{
            may_print,
            pr_info_ratelimited,
            pr_warn_ratelimited,
            About, //
        },
        rdma::{
            Failure,
            OperationItem,
            Qp,
            QpEvent,
            QpHandler,
            Queue,
            Received,
            SendProgress, //
        },
        sync::ReadOnce, //
    },
    msg::Owner,
    proto::completion_watchdog::WatchdogTimeout,
    socket::TransportId,
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    }, //
};

impl QpHandler for QpContext {
    type Poll = RecvRingPolicy;

    fn received(
        &self,
        _qp: &Qp<Self>,
        ring: &mut RecvRingPolicy,
        message: Received,
    ) -> Result<u32, Received> {
        if !self.receiving.read_once() {
            self.receiving.store(true, Relaxed);
            self.shared.note_first_frame();
            if self.device.caps.active_side_first {
                // A READ may wait for this. Transmitters see the flag after `resume`.
                self.connection.resume();
            }
        }
        let delayed = ring.delayed.take();
        if delayed.is_none() && ring.depth.arrive() {
            self.connection.node.stats.inc(Counter::IbRxRingGrown);
            self.device.service_later();
        }
        let Received { buf, len } = message;
        let (mut buf, mut parts) = (Some(buf), delayed.unwrap_or(0));
        let frame = RecvFrame::Dma {
            buf: &mut buf,
            len: len as usize,
            device: self.device.id,
        };
        let received = self.connection.receive(frame, &mut parts);
        if let Err(error) = received {
            if let (ReceiveError::NoMemory, Some(buf)) = (error, buf) {
                ring.delayed = Some(parts);
                self.service_soon();
                return Err(Received { buf, len });
            }
            self.fail();
            return Ok(1);
        }
        match buf {
            // Buffers that the ring does not need go back to the pool.
            // CAST: A batch is small.
            Some(buf) if ring.depth.needs_spare(ring.spare.len() as u32) => {
                drop(ring.spare.push(buf));
            }
            buf => drop(buf),
        }
        Ok(parts)
    }

    fn notified(&self) {
        self.connection.node.stats.inc(Counter::IbEvtHandlerCall);
    }

    fn operated(&self, item: &OperationItem) {
        let conn = || self.connection.key.traced();
        trace::op_completed(conn, || traced_op(item));
    }

    fn sent(&self, qp: &Qp<Self>, reports: usize) {
        self.connection
            .node
            .stats
            .add(Counter::IbTxCqEvent, reports);
        trace::send_completed(
            || self.connection.key.traced(),
            TransportId::Ib as u8,
            reports,
            || {
                let progress = qp.send_progress();
                progress.posted.saturating_sub(progress.done)
            },
        );
        self.device.note_progress();
        if self.blocked.read_once() && self.blocked.xchg(false, Full) {
            self.connection.resume();
        }
    }

    fn failed(&self, _qp: &Qp<Self>, failure: Failure) {
        let flushed = failure.status.is_flush();
        // Soft-RoCE flushes all requests if it has no memory to send. Nothing else reports that.
        if !flushed || !self.shared.progress.has_ended() {
            self.connection
                .note_error(failure.queue.name(), failure.status.number());
        }
        // Errors that programs cause have a rate limit of their own, and hide no others.
        let about = match failure.refused {
            Some(_) => About::Attempt,
            None => About::Failure,
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
            self.connection
                .fault_limiter
                .note(owner.user, owner.standing);
            self.shared.note(EndpointEvent::Fault);
        } else {
            self.fail();
        }
    }

    fn unexpected_opcode(&self, opcode: u32) {
        let stats = &self.connection.node.stats;
        stats.inc(Counter::IbRxMisused);
        // CAST: The number is small.
        self.connection.note_error("receive opcode", opcode as i32);
        pr_info_ratelimited!(
            self.connection.log_limit,
            "{}: unexpected opcode {} of a receive: dropping the connection\n",
            self.connection.key,
            opcode
        );
        self.fail();
    }

    fn out_of_order(&self, queue: Queue) {
        self.connection.node.stats.inc(Counter::IbOutOfOrder);
        self.connection.note_error("completion order", 0);
        pr_warn_ratelimited!(
            self.connection.log_limit,
            "{}: the device lost or repeated a completion ({} queue): dropping the connection\n",
            self.connection.key,
            queue.name()
        );
        self.fail();
    }

    fn not_flushed(&self, error: Error) {
        self.connection.node.stats.inc(Counter::IbNotFlushed);
        self.connection.note_failure("flush", error);
        pr_warn_ratelimited!(
            self.connection.log_limit,
            "{}: queue pair not flushed (error {}): destroying it anyway\n",
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
            trace::recv_completed(
                || self.connection.key.traced(),
                TransportId::Ib as u8,
                frames,
                || ring.depth.posted(),
            );
        }
        if !ring.depth.is_low() {
            return;
        }
        self.connection.node.stats.inc(Counter::IbRxRefillFromCq);
        if Self::refill(qp, ring).is_err() {
            // The device's worker can wait for memory.
            self.service_now();
        }
    }

    fn event(&self, _qp: &Qp<Self>, event: QpEvent) {
        if let QpEvent::Fatal(event) = event {
            self.connection.note_error("queue pair", event);
            self.fail();
        }
    }
}

impl EndpointQp for Qp<QpContext> {
    fn send_progress(&self) -> SendProgress {
        Qp::send_progress(self)
    }

    fn send_something(&self) {
        self.handler().send_something(self);
    }

    fn check_progress(&self, timeout: WatchdogTimeout) {
        QpContext::check_progress(self, timeout);
    }

    fn give_up_sending(&self, what: &str) {
        self.handler().give_up_sending(what);
    }

    fn needs_service(&self) -> bool {
        self.handler().needs_service()
    }

    fn service_ring(&self, period_ends: bool) -> NextCheck {
        QpContext::service_ring(self, period_ends)
    }
}
