// SPDX-License-Identifier: GPL-2.0

//! The data path: frames out of the connection's queue, and into it.

use super::endpoint::Events;
use crate::conn::{Connection, Counter, Link, Reached, TxQueue, CONG_FRAGMENTS};
use crate::kapi::{
    print::pr_info_ratelimited,
    rdma::{Failure, Qp, QpEvent, QpHandler, Received, SendChain, SendItem},
    sync::{new_spinlock_bh, SpinLockBh},
};
use crate::proto::wire::{self, Flags, Header, FRAGMENT};
use crate::recv_pool::{Batch, Buf, Context, Pools};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
    },
};

/// Every so many sends one reports its completion, and that of all before it.
const SIGNAL_EVERY: u32 = 16;

/// Receives posted for a new connection: what one shard of the pool holds.
const FIRST_DEPTH: u32 = 15;

/// The receive ring.
struct RecvRing {
    /// How many receives are to be posted.
    depth: u32,
    posted: u32,
    /// Buffers that can be posted again.
    spare: Batch,
}

/// What an endpoint's queue pair works with.
#[pin_data]
pub(super) struct Carrier {
    connection: Arc<Connection>,
    events: Arc<Events>,
    pools: Arc<Pools>,
    /// Sends that can be posted. Taken with the connection's queue locked.
    room: Atomic<u32>,
    /// Sends since the last that reports itself. Used with the connection's queue locked.
    unsignaled: Atomic<u32>,
    /// A sender found no room: it goes on when there is some.
    blocked: Atomic<bool>,
    /// A frame has arrived.
    receiving: Atomic<bool>,
    #[pin]
    recv: SpinLockBh<RecvRing>,
    max_depth: u32,
}

impl Carrier {
    pub(super) fn new(
        connection: Arc<Connection>,
        events: Arc<Events>,
        pools: Arc<Pools>,
        (max_send, max_recv): (u32, u32),
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            connection,
            events,
            pools,
            room: Atomic::new(max_send),
            unsignaled: Atomic::new(0),
            blocked: Atomic::new(false),
            receiving: Atomic::new(false),
            recv <- new_spinlock_bh!(
                RecvRing {
                    depth: FIRST_DEPTH.min(max_recv),
                    posted: 0,
                    spare: Batch::new(),
                },
                "Carrier::recv"
            ),
            max_depth: max_recv,
        })
    }

    /// The endpoint can do nothing any more. Any context.
    fn fail(&self) {
        self.events.note(Reached::Lost);
    }

    /// Posts receives until the ring is as deep as it should be. Any context but a hard interrupt.
    ///
    /// Fails with ENOMEM if none is posted at all, so that nothing would ever refill it.
    pub(super) fn refill(qp: &Qp<Self>, context: Context) -> Result {
        let this = qp.handler();
        loop {
            let mut recv = this.recv.lock();
            let missing = recv.depth.saturating_sub(recv.posted);
            if missing == 0 {
                return Ok(());
            }
            let mut batch = core::mem::replace(&mut recv.spare, Batch::new());
            drop(recv);
            let wanted = (missing as usize)
                .min(Batch::MAX)
                .saturating_sub(batch.len());
            this.pools.recv.alloc_many(wanted, context, &mut batch);
            let found = batch.len();
            let posted = qp.post_recv(&mut batch);
            let mut recv = this.recv.lock();
            recv.posted = recv.posted.saturating_add(*posted.as_ref().unwrap_or(&0));
            let none = recv.posted == 0;
            drop(recv);
            posted?;
            if found == 0 {
                this.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return if none { Err(ENOMEM) } else { Ok(()) };
            }
        }
    }

    /// A frame has arrived: its place in the ring is free. Returns whether it is time to refill.
    fn note_received(&self) {
        let mut recv = self.recv.lock();
        recv.posted = recv.posted.saturating_sub(1);
        // The peer sends faster than one ring's worth for each refill: make the ring deeper.
        if recv.posted < recv.depth / 4 && recv.depth < self.max_depth {
            recv.depth = recv.depth.saturating_mul(2).min(self.max_depth);
        }
    }

    /// Whether so few receives are posted that it is time for more.
    fn needs_refill(&self) -> bool {
        let recv = self.recv.lock();
        recv.posted <= recv.depth - recv.depth / 4
    }
}

impl QpHandler for Carrier {
    fn received(&self, _qp: &Qp<Self>, message: Received) {
        if !self.receiving.load(Relaxed) {
            self.receiving.store(true, Relaxed);
            self.events.note_first_frame();
        }
        self.note_received();
        match self.connection.receive(message.buf, message.len) {
            Ok(Some(buf)) => {
                let mut recv = self.recv.lock();
                let full = recv.spare.push(buf);
                drop(recv);
                drop(full);
            }
            Ok(None) => {}
            Err(_) => self.fail(),
        }
    }

    fn sent(&self, _qp: &Qp<Self>, count: u32) {
        self.room.fetch_add(count, Full);
        if self.blocked.load(Relaxed) && self.blocked.xchg(false, Full) {
            self.connection.resume();
        }
    }

    fn failed(&self, _qp: &Qp<Self>, failure: Failure) {
        if !failure.status.is_flush() {
            pr_info_ratelimited!(
                "{}: {:?} failed: {} (vendor error {:#x})\n",
                self.connection.key,
                failure.queue,
                failure.status.message(),
                failure.vendor_err
            );
        }
        self.fail();
    }

    fn polled(&self, qp: &Qp<Self>) {
        self.connection.flush_ack();
        if self.needs_refill() {
            self.connection.node.stats.inc(Counter::IbRxRefillFromCq);
            if Self::refill(qp, Context::Atomic).is_err() {
                // With nothing posted nothing completes, so no one would try again.
                self.connection.node.stats.inc(Counter::IbRxRingEmpty);
                self.fail();
            }
        }
    }

    fn event(&self, _qp: &Qp<Self>, event: QpEvent) {
        if let QpEvent::Fatal(_) = event {
            self.fail();
        }
    }
}

/// Frames on their way to the queue pair.
struct Frames<'a> {
    qp: &'a Qp<Carrier>,
    chain: SendChain,
    room: u32,
    failed: bool,
}

impl Frames<'_> {
    /// Adds a frame of `len` bytes. There is room.
    fn push(&mut self, buf: Buf, len: u32, solicited: bool) {
        let carrier = self.qp.handler();
        let unsignaled = carrier.unsignaled.load(Relaxed).saturating_add(1);
        let signaled = unsignaled >= SIGNAL_EVERY;
        carrier
            .unsignaled
            .store(if signaled { 0 } else { unsignaled }, Relaxed);
        self.room = self.room.saturating_sub(1);
        let item = SendItem {
            buf,
            offset: 0,
            len,
            signaled,
            solicited,
        };
        if let Err(item) = self.chain.push(item) {
            self.post();
            // The chain is empty now, or the endpoint has failed.
            self.failed |= self.chain.push(item).is_err();
        }
    }

    fn post(&mut self) {
        if self.chain.is_empty() || self.failed {
            return;
        }
        let carrier = self.qp.handler();
        // CAST: 16 at the most.
        let count = self.chain.len() as u32;
        carrier.room.fetch_sub(count, Full);
        if let Err(error) = self.qp.post_send(&mut self.chain) {
            self.failed = true;
            pr_info_ratelimited!(
                "{}: posting a send failed: {:?}\n",
                carrier.connection.key,
                error
            );
        }
    }
}

impl Link for Qp<Carrier> {
    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        let carrier = self.handler();
        if queue.is_idle() {
            return;
        }
        let mut frames = Frames {
            qp: self,
            chain: SendChain::new(),
            room: carrier.room.load(Relaxed),
            failed: false,
        };
        let ack = connection.ack();
        loop {
            if frames.room == 0 {
                connection.node.stats.inc(Counter::IbTxRingFull);
                carrier.blocked.store(true, Relaxed);
                // A completion may have come before it could see that we wait.
                kernel::sync::barrier::smp_mb();
                frames.room = carrier.room.load(Relaxed).saturating_sub(
                    // What is in the chain has not been taken from the room yet.
                    frames.chain.len() as u32,
                );
                if frames.room == 0 {
                    break;
                }
                carrier.blocked.store(false, Relaxed);
            }
            if frames.failed || !next_frame(connection, queue, ack, &mut frames) {
                break;
            }
            queue.ack_due = false;
        }
        frames.post();
        if frames.failed {
            carrier.fail();
        }
    }
}

/// Adds the next frame that the queue has, if it has one.
fn next_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    frames: &mut Frames<'_>,
) -> bool {
    let half_out = queue.unsent.front().is_some_and(|m| m.fragment > 0);
    if queue.cong_fragments > 0 && !half_out {
        return congestion_frame(connection, queue, ack, frames);
    }
    if queue.unsent.front().is_some() {
        return message_frame(connection, queue, ack, frames);
    }
    queue.ack_due && ack_frame(connection, ack, frames)
}

/// Adds the next fragment of the first unsent message.
fn message_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    frames: &mut Frames<'_>,
) -> bool {
    let Some(message) = queue.unsent.front_mut() else {
        return false;
    };
    if message.fragment == 0 {
        message.flags = if message.sent_before {
            queue.state.retransmit()
        } else {
            queue.state.transmit(message.sequence, message.len)
        };
        if message.sender_is_short() {
            message.flags = message.flags.with(Flags::ACK_REQUIRED);
        }
        if message.flags.contains(Flags::ACK_REQUIRED) {
            connection.node.stats.inc(Counter::SendAckRequired);
        }
    }
    let Some(part) = wire::fragment(message.len, message.fragment) else {
        frames.failed = true;
        return false;
    };
    let header = Header {
        sequence: message.sequence,
        ack,
        len: message.len,
        sport: message.sport,
        dport: message.dport,
        flags: message.flags,
        credit: 0,
        exthdr: [0; 16],
    };
    let Some(buf) = message.fragment_to_post(&header) else {
        frames.failed = true;
        return false;
    };
    message.fragment = message.fragment.saturating_add(1);
    frames.push(buf, part.len.saturating_add(Header::LEN as u32), part.last);
    if part.last {
        if let Some(message) = queue.unsent.pop_front() {
            queue.sent.push_back(message);
        }
    }
    true
}

/// Adds the next fragment of this node's congestion map.
fn congestion_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    frames: &mut Frames<'_>,
) -> bool {
    let carrier = frames.qp.handler();
    let Ok(mut buf) = carrier.pools.alloc_send(FRAGMENT, Context::Atomic) else {
        // Without its map the peer would not hold back, or never go on: reconnect and try again.
        connection.node.stats.inc(Counter::CongUpdateFailed);
        frames.failed = true;
        return false;
    };
    let first = queue.cong_fragments % CONG_FRAGMENTS == 0;
    let offset = if first { 0 } else { FRAGMENT };
    let header = Header::congestion_update(ack, connection.node.generation);
    let (head, rest) = match buf.bytes_mut().split_first_chunk_mut() {
        Some(parts) => parts,
        None => return false,
    };
    header.emit(head);
    let Some(piece) = rest.get_mut(..FRAGMENT as usize) else {
        return false;
    };
    let key = &connection.key;
    connection
        .node
        .cong
        .copy_fragment(key.net, key.laddr, offset, piece);
    frames.push(
        buf.freeze(),
        FRAGMENT.saturating_add(Header::LEN as u32),
        !first,
    );
    queue.cong_fragments = queue.cong_fragments.saturating_sub(1);
    true
}

/// Adds a header that only acknowledges.
fn ack_frame(connection: &Connection, ack: u64, frames: &mut Frames<'_>) -> bool {
    let stats = &connection.node.stats;
    let Ok(mut buf) = frames.qp.handler().pools.alloc_send(0, Context::Atomic) else {
        // It stays due: the next frame, of whatever kind, carries it.
        stats.inc(Counter::IbAckSendFailure);
        return false;
    };
    let header = Header {
        sequence: 0,
        ack,
        len: 0,
        sport: 0,
        dport: 0,
        flags: Flags::NONE,
        credit: 0,
        exthdr: [0; 16],
    };
    let Some(head) = buf.bytes_mut().first_chunk_mut() else {
        return false;
    };
    header.emit(head);
    frames.push(buf.freeze(), Header::LEN as u32, true);
    stats.inc(Counter::IbAckSent);
    true
}
