// SPDX-License-Identifier: GPL-2.0

//! The data path: frames out of the connection's queue, and into it.

use super::{device::Device, endpoint::Events};
use crate::conn::{Connection, Counter, Link, Reached, TxQueue, CONG_FRAGMENTS};
use crate::kapi::{
    print::pr_info_ratelimited,
    rdma::{Failure, Qp, QpEvent, QpHandler, Received, SendChain, SendItem},
};
use crate::proto::wire::{self, Flags, Header, FRAGMENT};
use crate::recv_pool::{Batch, Buf, Context};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc,
    },
};

/// Receives posted for a new connection: what one shard of the pool holds.
const FIRST_DEPTH: u32 = 15;

/// How deep the receive ring is.
pub(super) struct RecvRing {
    /// How many receives are to be posted.
    depth: u32,
    max_depth: u32,
    posted: u32,
    /// Buffers that can be posted again.
    spare: Batch,
}

/// What an endpoint's queue pair works with.
pub(super) struct Carrier {
    connection: Arc<Connection>,
    events: Arc<Events>,
    device: Arc<Device>,
    /// A sender found no room: it goes on when there is some.
    blocked: Atomic<bool>,
    /// A frame has arrived.
    receiving: Atomic<bool>,
}

impl RecvRing {
    /// A ring that has room for `slots` receives.
    pub(super) fn new(slots: u32) -> Self {
        Self {
            depth: FIRST_DEPTH.min(slots),
            max_depth: slots,
            posted: 0,
            spare: Batch::new(),
        }
    }

    fn missing(&self) -> u32 {
        self.depth.saturating_sub(self.posted)
    }

    /// A frame has arrived: its place in the ring is free.
    fn arrive(&mut self) {
        self.posted = self.posted.saturating_sub(1);
        // The peer sends faster than one ring's worth for each refill: make the ring deeper.
        if self.posted < self.depth / 4 && self.depth < self.max_depth {
            self.depth = self.depth.saturating_mul(2).min(self.max_depth);
        }
    }

    /// Whether so few receives are posted that it is time for more.
    fn is_low(&self) -> bool {
        self.posted <= self.depth - self.depth / 4
    }

    /// Posts what is spare, and more from the pool, until the ring is as deep as it should be, or memory
    /// is short. Fails with ENOMEM if none is posted at all, or as the device does.
    fn refill(&mut self, qp: &Qp<Carrier>) -> Result {
        let carrier = qp.handler();
        while self.missing() > 0 {
            let wanted = (self.missing() as usize)
                .min(Batch::MAX)
                .saturating_sub(self.spare.len());
            let pool = &carrier.device.pools.recv;
            pool.alloc_many(wanted, Context::Atomic, &mut self.spare);
            let posted = qp.post_recv(&mut self.spare)?;
            if posted == 0 {
                carrier.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return if self.posted > 0 { Ok(()) } else { Err(ENOMEM) };
            }
            self.posted = self.posted.saturating_add(posted);
        }
        Ok(())
    }
}

impl Carrier {
    pub(super) fn new(
        connection: Arc<Connection>,
        events: Arc<Events>,
        device: Arc<Device>,
    ) -> Self {
        Self {
            connection,
            events,
            device,
            blocked: Atomic::new(false),
            receiving: Atomic::new(false),
        }
    }

    /// The endpoint can do nothing any more. Any context.
    fn fail(&self) {
        self.events.note(Reached::Lost);
    }

    /// Posts receives until the ring is as deep as it should be, or memory is short. May sleep.
    ///
    /// Fails with ENOMEM if there is not even one: nothing would ever complete then. Otherwise the
    /// error is the device's.
    pub(super) fn fill(qp: &Qp<Self>) -> Result {
        let this = qp.handler();
        loop {
            let (missing, posted) = qp.with_poll(|ring| (ring.missing(), ring.posted));
            if missing == 0 {
                return Ok(());
            }
            let mut batch = Batch::new();
            let pool = &this.device.pools.recv;
            let found = pool.alloc_many(missing as usize, Context::MaySleep, &mut batch);
            if found == 0 {
                this.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return if posted > 0 { Ok(()) } else { Err(ENOMEM) };
            }
            qp.with_poll(|ring| -> Result {
                ring.posted = ring.posted.saturating_add(qp.post_recv(&mut batch)?);
                Ok(())
            })?;
        }
    }
}

impl QpHandler for Carrier {
    type Poll = RecvRing;

    fn received(&self, _qp: &Qp<Self>, ring: &mut RecvRing, message: Received) {
        if !self.receiving.load(Relaxed) {
            self.receiving.store(true, Relaxed);
            self.events.note_first_frame();
        }
        ring.arrive();
        match self.connection.receive(message.buf, message.len) {
            // What there is no room for goes back to the pool.
            Ok(Some(buf)) => drop(ring.spare.push(buf)),
            Ok(None) => {}
            Err(_) => self.fail(),
        }
    }

    fn sent(&self, _qp: &Qp<Self>) {
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

    fn polled(&self, qp: &Qp<Self>, ring: &mut RecvRing) {
        self.connection.flush_ack();
        if !ring.is_low() {
            return;
        }
        self.connection.node.stats.inc(Counter::IbRxRefillFromCq);
        if ring.refill(qp).is_err() {
            // With nothing posted nothing completes, so no one would try again.
            self.connection.node.stats.inc(Counter::IbRxRingEmpty);
            self.fail();
        }
    }

    fn event(&self, _qp: &Qp<Self>, event: QpEvent) {
        if let QpEvent::Fatal(_) = event {
            self.fail();
        }
    }
}

/// What became of the wish to add a frame.
enum Added {
    Frame,
    /// There is none.
    Nothing,
    /// The endpoint is of no use any more.
    Failed,
}

impl Link for Qp<Carrier> {
    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        if queue.is_idle() {
            return;
        }
        let carrier = self.handler();
        let ack = connection.ack();
        let mut chain = self.chain();
        let failed = loop {
            if chain.room() == 0 {
                connection.node.stats.inc(Counter::IbTxRingFull);
                // Whoever makes room takes the lock of `chain` for it, and looks here after that.
                carrier.blocked.store(true, Relaxed);
                break false;
            }
            match next_frame(connection, queue, ack, &mut chain) {
                Added::Frame => queue.ack_due = false,
                Added::Nothing => break false,
                Added::Failed => break true,
            }
        };
        if let Err(error) = chain.post() {
            pr_info_ratelimited!("{}: posting a send failed: {:?}\n", connection.key, error);
            carrier.fail();
        } else if failed {
            carrier.fail();
        }
    }
}

/// Adds a frame of `len` bytes. There is room.
fn add(chain: &mut SendChain<'_, Carrier>, buf: Buf, len: u32, solicited: bool) -> Added {
    let item = SendItem {
        buf,
        len,
        solicited,
    };
    match chain.push(item) {
        Ok(()) => Added::Frame,
        Err(_) => Added::Failed,
    }
}

/// Adds the next frame that the queue has, if it has one.
fn next_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, Carrier>,
) -> Added {
    let half_out = queue.unsent.front().is_some_and(|m| m.fragment > 0);
    if queue.cong_fragments > 0 && !half_out {
        return congestion_frame(connection, queue, ack, chain);
    }
    if queue.unsent.front().is_some() {
        return message_frame(connection, queue, ack, chain);
    }
    if queue.ack_due {
        return ack_frame(connection, ack, chain);
    }
    Added::Nothing
}

/// Adds the next fragment of the first unsent message.
fn message_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, Carrier>,
) -> Added {
    let Some(message) = queue.unsent.front_mut() else {
        return Added::Nothing;
    };
    if message.fragment == 0 {
        message.flags = if message.sent_before {
            queue.state.retransmit()
        } else {
            let pressure = message.pressure();
            queue
                .state
                .transmit(message.sequence, message.len, pressure)
        };
        if message.flags.contains(Flags::ACK_REQUIRED) {
            connection.node.stats.inc(Counter::SendAckRequired);
        }
    }
    let Some(part) = wire::fragment(message.len, message.fragment) else {
        return Added::Failed;
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
    let pools = &chain.qp().handler().device.pools;
    let Some(buf) = message.fragment_to_post(&header, part, pools) else {
        return Added::Failed;
    };
    message.fragment = message.fragment.saturating_add(1);
    let added = add(
        chain,
        buf,
        part.len.saturating_add(Header::LEN as u32),
        part.last,
    );
    if part.last {
        if let Some(message) = queue.unsent.pop_front() {
            queue.sent.push_back(message);
        }
    }
    added
}

/// Adds the next fragment of this node's congestion map.
fn congestion_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, Carrier>,
) -> Added {
    let carrier = chain.qp().handler();
    let Ok(mut buf) = carrier.device.pools.alloc_send(FRAGMENT, Context::Atomic) else {
        // Without its map the peer would not hold back, or never go on: reconnect and try again.
        connection.node.stats.inc(Counter::CongUpdateFailed);
        return Added::Failed;
    };
    let first = queue.cong_fragments % CONG_FRAGMENTS == 0;
    let offset = if first { 0 } else { FRAGMENT };
    let header = Header::congestion_update(ack, connection.node.generation);
    let (head, rest) = match buf.bytes_mut().split_first_chunk_mut() {
        Some(parts) => parts,
        None => return Added::Failed,
    };
    header.emit(head);
    let Some(piece) = rest.get_mut(..FRAGMENT as usize) else {
        return Added::Failed;
    };
    let key = &connection.key;
    connection
        .node
        .cong
        .copy_fragment(key.net, key.laddr, offset, piece);
    queue.cong_fragments = queue.cong_fragments.saturating_sub(1);
    add(
        chain,
        buf.freeze(),
        FRAGMENT.saturating_add(Header::LEN as u32),
        !first,
    )
}

/// Adds a header that only acknowledges.
fn ack_frame(connection: &Connection, ack: u64, chain: &mut SendChain<'_, Carrier>) -> Added {
    let stats = &connection.node.stats;
    let pools = &chain.qp().handler().device.pools;
    let Ok(mut buf) = pools.alloc_send(0, Context::Atomic) else {
        // It stays due: the next frame, of whatever kind, carries it.
        stats.inc(Counter::IbAckSendFailure);
        return Added::Nothing;
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
        return Added::Failed;
    };
    header.emit(head);
    stats.inc(Counter::IbAckSent);
    add(chain, buf.freeze(), Header::LEN as u32, true)
}
