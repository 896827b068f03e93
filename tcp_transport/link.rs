// SPDX-License-Identifier: GPL-2.0

//! The link of an established endpoint, and how a connection transmits on it.
//!
//! Frames go to the stage of the endpoint's context. Its work sends them, or the program that has
//! sent a message while nothing was on the way.

use super::{
    context::{
        Role,
        TcpContext, //
    },
    counters::TcpCounter,
    stage::FrameStage, //
};
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
        print::pr_change_ratelimited,
        rdma::{
            OperationItem,
            PostError,
            RejectedOp,
            SendItem, //
        },
        sync::{
            Item,
            SpinLockBhGuard, //
        }, //
    },
    proto::{
        info::{
            RdmaPath,
            TcpProgress, //
        },
        keepalive::LinkActivity,
        wire::FragmentSize,
        xmit::LinkRoom, //
    },
    recv_pool::Pools, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Frames in the stage that another one may wait for, because they are taken soon.
const REPORT_EVERY: u32 = 16;

/// The link of an established endpoint.
pub(super) struct TcpLink(pub(super) Arc<TcpContext>);

impl Link for TcpLink {
    fn fragment(&self) -> FragmentSize {
        FragmentSize::K8
    }

    fn path(&self) -> RdmaPath {
        RdmaPath::default()
    }

    fn tcp_progress(&self) -> Option<TcpProgress> {
        let io = self.0.io.lock();
        let socket = io.socket.as_ref()?;
        let (header_left, payload_left) = self.0.missing()?;
        let (last_begin, last_end) = io.writer.last();
        Some(TcpProgress {
            local_port: socket.local_addr().port,
            peer_port: socket.peer_addr().port,
            header_left: header_left as u64,
            payload_left: payload_left.into(),
            last_begin,
            last_end,
            una: socket.snd_una(),
        })
    }

    fn cpu(&self) -> Option<u32> {
        self.0.io.lock().socket.as_ref()?.cpu()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_passive = u8::from(self.0.role() == Role::Passive);
        let acked_by = self.0.io.lock().acked_by;
        let staged = self.0.stage.lock().count();
        f.write_fmt(fmt!(
            "transport=tcp passive={} acked_by={:?} staged={}",
            is_passive,
            acked_by,
            staged
        ))
    }

    fn announce(&self, connection: &Connection) {
        let key = &connection.key;
        let side = match self.0.role() {
            Role::Passive => "Passive",
            Role::Active | Role::WakeUp => "Active",
        };
        pr_change_ratelimited!(
            connection.log_limit,
            "RDS/TCP: {} conn connected <{},{},{}>\n",
            side,
            AsIs(key.laddr),
            AsIs(key.faddr),
            key.tos
        );
    }

    fn activity(&self) -> LinkActivity {
        let (arrived, has_stopped) = self.0.activity();
        LinkActivity {
            arrived,
            rx_stalled: false,
            given: 0,
            done: 0,
            operates: false,
            offers: false,
            offers_for: 0,
            asks: true,
            has_stopped,
        }
    }

    fn give_up(&self) {
        self.0.lose();
    }

    fn push(&self) -> bool {
        self.0.push()
    }

    fn push_later(&self) {
        self.0.queue();
    }

    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        let context = &self.0;
        let caller_pushes = queue.caller_pushes;
        let sink = || StagedFrames {
            context,
            stage: context.stage.lock(),
            caller_pushes,
        };
        match xmit::transmit(connection, queue, sink) {
            Ok(()) => {}
            Err(XmitError::Post(error)) => {
                connection.note_failure("post", error);
                context.lose();
            }
            Err(XmitError::Frame | XmitError::Operation) => {
                connection.note_failure("frame", EIO);
                context.lose();
            }
        }
    }
}

/// The stage of a context, for one transmission.
struct StagedFrames<'a> {
    context: &'a Arc<TcpContext>,
    stage: SpinLockBhGuard<'a, FrameStage>,
    caller_pushes: bool,
}

impl FrameSink for StagedFrames<'_> {
    fn room(&self) -> LinkRoom {
        // CAST: small numbers.
        LinkRoom {
            room: self.stage.room() as u32,
            in_flight: self.stage.count() as u32,
            report_every: REPORT_EVERY,
            reads: None,
        }
    }

    fn fragment(&self) -> FragmentSize {
        FragmentSize::K8
    }

    /// The stream has no fragments. So no message needs other buffers than its own, and none stops
    /// half way for lack of memory. The peer would give this node up for that.
    fn fragment_of(&self, cut: FragmentSize) -> FragmentSize {
        cut
    }

    fn pools(&self) -> &Pools {
        self.context.transport.memory()
    }

    fn awaits_first_frame(&self) -> bool {
        false
    }

    fn serves_reads(&self) -> bool {
        false
    }

    fn push(&mut self, item: SendItem, _reports: bool) -> Result {
        self.stage.push(item)
    }

    fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp> {
        // No socket of this transport has operations.
        Err((item, PostError::Never))
    }

    fn resume_later(&mut self) {
        self.context.blocked.store(true, Relaxed);
    }

    fn await_buffer(&mut self, len: u32) {
        self.context.transport.counters.inc(TcpCounter::TxAllocWait);
        // Called with `Path::tx` held, so no other length is stored meanwhile.
        let wanted = &self.context.wanted;
        if len.max(1) > wanted.load(Relaxed) {
            wanted.store(len.max(1), Relaxed);
        }
    }

    fn flush(self) -> Result {
        if !self.caller_pushes {
            self.context.queue();
        }
        Ok(())
    }
}
