// SPDX-License-Identifier: GPL-2.0

//! The link of an established endpoint: a queue pair takes the frames of a connection.
//!
//! `conn/xmit.rs` builds the frames. Each is one work request, whose buffer belongs to the queue
//! pair until it completes. The work requests are chained and posted at once. If there was no room,
//! a completion transmits again. If there was no buffer, the device's worker does, which may sleep.
//! The endpoint is given up if posting fails.

use super::qp_context::QpContext;
use crate::{
    conn::{
        xmit::{
            self,
            FrameSink,
            XmitError, //
        },
        AsIs,
        Connection,
        Link,
        TxQueue, //
    },
    kapi::{
        print::{
            pr_change_ratelimited,
            pr_info_ratelimited, //
        },
        rdma::{
            OperationItem,
            Qp,
            RejectedOp,
            SendChain,
            SendItem,
            Verb,
            MAX_UNSIGNALED, //
        },
        sync::Item, //
    },
    proto::{
        info::{
            QueuePair,
            RdmaPath, //
        },
        keepalive::LinkActivity,
        wire::FragmentSize,
        xmit::{
            LinkRoom,
            ReadRules, //
        }, //
    },
    recv_pool::Pools,
    trace::{
        self,
        TracedOp,
        TracedVerb, //
    }, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::atomic::Relaxed, //
};

impl Link for Qp<QpContext> {
    fn fragment(&self) -> FragmentSize {
        self.handler().shared.fragment()
    }

    fn path(&self) -> RdmaPath {
        self.handler().path.copy().unwrap_or_default()
    }

    fn queue_pair(&self) -> Option<QueuePair> {
        let numbers = self.numbers()?;
        Some(QueuePair {
            fragment: self.fragment().bytes(),
            own: numbers.own,
            peer: numbers.peer,
            vector: numbers.vector,
            cpu: numbers.cpu,
        })
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (context, path) = (self.handler(), self.path());
        context
            .device
            .pd
            .device()
            .with_name(|name| f.write_fmt(fmt!("device={}", name)))?;
        f.write_fmt(fmt!(
            " passive={} flow_control={} send_ring={} recv_ring={} service_level={}",
            u8::from(context.shared.is_passive()),
            u8::from(context.controlled),
            path.max_send_wr,
            path.max_recv_wr,
            path.service_level
        ))?;
        let Some(qp) = self.queue_pair() else {
            return Ok(());
        };
        f.write_fmt(fmt!(
            " qpn={} peer_qpn={} vector={}",
            qp.own,
            qp.peer,
            qp.vector
        ))
    }

    fn announce(&self, connection: &Connection) {
        let (context, key) = (self.handler(), &connection.key);
        let shared = &context.shared;
        let (major, minor) = shared
            .version()
            .map_or((0, 0), |version| (version.major(), version.minor()));
        // The text is that of C RDS, because programs search for it.
        pr_change_ratelimited!(
            connection.log_limit,
            "RDS/IB: {} conn connected <{},{},{}> version {}.{}{}, fragments of {} bytes\n",
            if shared.is_passive() {
                "Passive"
            } else {
                "Active"
            },
            AsIs(key.laddr),
            AsIs(key.faddr),
            key.tos,
            major,
            minor,
            if context.controlled {
                ", flow control"
            } else {
                ""
            },
            shared.fragment().bytes()
        );
    }

    fn activity(&self) -> LinkActivity {
        let (arrived, rx_stalled) = self.with_poll(|ring| ring.activity());
        let progress = self.send_progress();
        let device = &self.handler().device;
        LinkActivity {
            arrived,
            rx_stalled,
            given: progress.posted,
            done: progress.done,
            operates: progress.operates,
            offers: device.offers_memory(),
            offers_for: device.time_for_operations(),
            asks: false,
            has_stopped: false,
        }
    }

    fn give_up(&self) {
        self.handler().fail();
    }

    fn await_answers(&self) {
        QpContext::await_answers(self);
    }

    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        if self.handler().shared.progress.has_ended() {
            // What waits is for the next link. In particular an operation is posted only once.
            return;
        }
        let sink = || Frames(self.chain());
        match xmit::transmit(connection, queue, sink) {
            Ok(()) => {}
            Err(XmitError::Post(error)) => {
                connection.note_failure("post", error);
                pr_info_ratelimited!(
                    connection.log_limit,
                    "{}: posting a send failed: {:?}\n",
                    connection.key,
                    error
                );
                self.handler().fail();
            }
            Err(XmitError::Frame) => self.handler().give_up("frame", EIO),
            Err(XmitError::Operation) => self.handler().give_up("operation", EIO),
        }
    }
}

/// Returns the form of a work request that tracepoints use.
#[cold]
pub(super) fn traced_op(item: &OperationItem) -> TracedOp {
    TracedOp {
        verb: match item.verb() {
            Verb::Write => TracedVerb::Write,
            Verb::Read => TracedVerb::Read,
            Verb::FetchAdd { .. } => TracedVerb::FetchAdd,
            Verb::CompareSwap { .. } => TracedVerb::CompareSwap,
        },
        bytes: item.len(),
        number: item.number(),
        last: item.is_last(),
        status: item.status().number().unsigned_abs(),
    }
}

/// Chain of frames for a queue pair.
struct Frames<'a>(SendChain<'a, QpContext>);

impl<'a> Frames<'a> {
    #[inline]
    fn context(&self) -> &'a QpContext {
        self.0.qp().handler()
    }
}

impl FrameSink for Frames<'_> {
    #[inline]
    fn room(&self) -> LinkRoom {
        let reads = self.context().config.wait_for_reads.then(|| ReadRules {
            awaits_reads: self.0.awaits_reads(),
            // The first frame of the peer resumes transmission.
            awaits_first_frame: self.awaits_first_frame(),
        });
        LinkRoom {
            room: self.0.room(),
            in_flight: self.0.in_flight(),
            report_every: MAX_UNSIGNALED,
            reads,
        }
    }

    #[inline]
    fn fragment(&self) -> FragmentSize {
        self.context().shared.fragment()
    }

    #[inline]
    fn pools(&self) -> &Pools {
        &self.context().device.pools
    }

    fn awaits_first_frame(&self) -> bool {
        self.context().is_awaiting_first_frame()
    }

    fn serves_reads(&self) -> bool {
        self.context().shared.serves_reads()
    }

    #[inline]
    fn push(&mut self, item: SendItem, reports: bool) -> Result {
        if reports {
            self.0.report_next();
        }
        self.0.push(item)
    }

    fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp> {
        let traced = trace::traces_posted_ops().then(|| traced_op(&item));
        self.0.operate(item)?;
        if let Some(traced) = traced {
            trace::op_posted(&self.context().connection.key.traced(), &traced);
        }
        Ok(())
    }

    fn resume_later(&mut self) {
        // The completion handler takes the lock of the chain to make room, and then checks
        // `blocked`.
        self.context().blocked.store(true, Relaxed);
    }

    fn await_buffer(&mut self, len: u32) {
        // The device's worker makes room. An immediate retry would keep it busy until there is
        // memory.
        self.context().await_buffer(len);
    }

    #[inline]
    fn flush(self) -> Result {
        self.0.post()
    }
}
