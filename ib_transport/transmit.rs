// SPDX-License-Identifier: GPL-2.0

//! Frames out of the connection's queue, to the queue pair.

use super::qp_context::QpContext;
use crate::cong;
use crate::conn::{AsIs, Connection, Counter, Link, TxQueue};
use crate::kapi::{
    print::{pr_change_ratelimited, pr_info_ratelimited},
    rdma::{Qp, SendChain, SendItem, MAX_UNREPORTED},
};
use crate::msg::{FollowUp, Message, Posted};
use crate::proto::{
    credits::Credits,
    info::RdmaPath,
    keepalive::LinkActivity,
    packed::{self, Packer},
    tx::SendState,
    wire::{self, Flags, FragmentSize, Header, CONG_MAP_BYTES, PING_PORT},
};
use crate::recv_pool::{Buf, Context};
use kernel::{fmt, prelude::*, sync::atomic::Relaxed};

/// With so many frames in flight short messages wait for others to share a frame with, until that is
/// full or some of the frames are done: a round trip at the most. The device has enough to do.
const CROWDED: u32 = 2 * MAX_UNREPORTED;

/// Bytes of payload that are copied in one go, while softirqs are off, for messages that are cut for
/// another fragment size or are in another device's memory; a little more if few frames are in
/// flight. The rest goes when some of these are done.
const COPIED_AT_ONCE: u32 = 128 << 10;

/// What became of the wish to add a frame.
enum Added {
    Frame,
    /// A frame whose payload was copied, of so many bytes.
    Copy(u32),
    /// Something else that takes room in the send queue, but no receive of the peer's.
    WorkRequest,
    /// There is none.
    Nothing,
    /// The endpoint is of no use any more.
    Failed,
}

impl Link for Qp<QpContext> {
    fn fragment(&self) -> FragmentSize {
        self.handler().events.fragment()
    }

    fn path(&self) -> RdmaPath {
        self.handler().path.copy().unwrap_or_default()
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
            u8::from(context.events.is_passive()),
            u8::from(context.controlled),
            path.max_send_wr,
            path.max_recv_wr,
            path.service_level
        ))
    }

    fn announce(&self, connection: &Connection) {
        let (context, key) = (self.handler(), &connection.key);
        let events = &context.events;
        let (major, minor) = events
            .version()
            .map_or((0, 0), |version| (version.major(), version.minor()));
        // Programs look for C's words.
        pr_change_ratelimited!(
            "RDS/IB: {} conn connected <{},{},{}> version {}.{}{}, fragments of {} bytes\n",
            if events.is_passive() {
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
            events.fragment().bytes()
        );
    }

    fn activity(&self) -> LinkActivity {
        let (arrived, rx_stalled) = self.with_poll(|ring| ring.heard());
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
        }
    }

    fn give_up(&self) {
        self.handler().fail();
    }

    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        if queue.is_idle() {
            return;
        }
        let context = self.handler();
        let ack = connection.ack();
        let mut chain = self.chain();
        let mut copied = 0u32;
        let failed = loop {
            if chain.room() == 0 {
                connection.node.stats.inc(Counter::IbTxRingFull);
                // Whoever makes room takes the lock of `chain` for it, and looks here after that.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if chain.in_flight() >= CROWDED && connection.peer_accepts_packed() && queue.can_delay()
            {
                // Some of those frames will report, and that comes here as well.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if copied >= COPIED_AT_ONCE && chain.in_flight() >= MAX_UNREPORTED {
                context.blocked.store(true, Relaxed);
                break false;
            }
            if context.config.wait_for_reads && has_to_wait(context, queue, &chain) {
                // The peer's first frame comes here as well, and so does the end of reads.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if !queue.credits.may_send() {
                // What the peer tells comes here as well.
                connection.node.stats.inc(Counter::IbTxThrottle);
                break false;
            }
            let added = next_frame(connection, queue, ack, &mut chain);
            if let Added::Copy(bytes) = added {
                copied = copied.saturating_add(bytes);
            }
            match added {
                Added::Frame | Added::Copy(_) => {
                    // Every frame acknowledges.
                    if core::mem::take(&mut queue.ack_due) {
                        connection.node.stats.inc(Counter::IbAckSendPiggybacked);
                    }
                    queue.credits.spend();
                }
                Added::WorkRequest => {}
                Added::Nothing => break false,
                Added::Failed => break true,
            }
        };
        if let Err(error) = chain.post() {
            connection.note_failure("post", error);
            pr_info_ratelimited!("{}: posting a send failed: {:?}\n", connection.key, error);
            context.fail();
        } else if failed {
            // Most likely for want of a buffer.
            context.give_up_for_memory("next frame", EIO);
        }
    }
}

/// Whether a header goes before the operation that is next. Not amid one: reads may be under way then of which only the
/// last is sure to report.
fn header_goes_first(queue: &TxQueue) -> bool {
    queue.is_header_due() && !queue.unsent.front().is_some_and(Message::is_partially_sent)
}

/// Whether what is next must not be posted yet, to a device on which nothing goes behind a read.
fn has_to_wait(context: &QpContext, queue: &TxQueue, chain: &SendChain<'_, QpContext>) -> bool {
    if queue.reads_next() && !header_goes_first(queue) {
        // Something has to go if the peer has not heard of us.
        context.is_awaiting_first_frame()
    } else {
        chain.awaits_reads()
    }
}

/// What the header of the next frame tells of our receives.
#[inline]
fn tell(connection: &Connection, credits: &mut Credits) -> u8 {
    let credit = credits.tell();
    if credit > 0 {
        connection.node.stats.inc(Counter::IbTxCreditUpdates);
    }
    credit
}

/// Adds a frame of `len` bytes. There is room.
fn add(chain: &mut SendChain<'_, QpContext>, buf: Buf, len: u32, solicited: bool) -> Added {
    let item = SendItem {
        buf,
        len,
        solicited,
        fence: false,
    };
    push(chain, item)
}

fn push(chain: &mut SendChain<'_, QpContext>, item: SendItem) -> Added {
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
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let half_out = queue.unsent.front().is_some_and(Message::is_partially_sent);
    if queue.cong_left > 0 && !half_out {
        return congestion_frame(connection, queue, ack, chain);
    }
    if connection.peer_accepts_packed() && queue.can_pack() {
        return packed_frame(connection, queue, ack, chain);
    }
    if let Some(message) = queue.unsent.front() {
        if message.has_to_operate() {
            return header_or_work_request(connection, queue, ack, chain);
        }
        return message_frame(connection, queue, ack, chain);
    }
    if queue.is_header_due() {
        return ack_frame(connection, queue, ack, chain);
    }
    Added::Nothing
}

/// Decides on the flags of a message of which nothing is out, and whose header acknowledges `ack`.
fn set_flags(connection: &Connection, state: &mut SendState, message: &mut Message, ack: u64) {
    state.tell(message.sequence, ack);
    message.flags = if state.was_sent(message.sequence) {
        state.retransmit()
    } else {
        let pressure = message.pressure();
        state.transmit(message.sequence, message.len, pressure)
    };
    if message.wants_ack() {
        message.flags = message.flags.with(Flags::ACK_REQUIRED);
    }
    if message.is_question() {
        // Or it would be a bare acknowledgement.
        message.flags = message.flags.with(Flags::HB_PING);
    }
    if message.flags.contains(Flags::ACK_REQUIRED) {
        connection.node.stats.inc(Counter::SendAckRequired);
        state.set_policy(connection.node.tunables.ack_policy());
    }
}

fn header_of(message: &Message, ack: u64, credit: u8) -> Header {
    let (sport, dport) = if message.is_question() {
        (PING_PORT, PING_PORT)
    } else {
        (message.sport, message.dport)
    };
    Header {
        sequence: message.sequence,
        ack,
        len: message.len,
        sport,
        dport,
        flags: message.flags,
        credit,
        exthdr: message.extensions(),
    }
}

/// Adds a frame with as many of the first unsent messages as have room in it.
fn packed_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let pools = &chain.qp().handler().device.pools;
    let Ok(mut buf) = pools.alloc_send(packed::ROOM, Context::Atomic) else {
        // Alone it has its own.
        return message_frame(connection, queue, ack, chain);
    };
    let mut packer = Packer::new(buf.bytes_mut());
    let mut credit = tell(connection, &mut queue.credits);
    while let Some(message) = queue.unsent.front_mut() {
        if !message.is_packable() || !packer.has_room(message.len) {
            break;
        }
        set_flags(connection, &mut queue.state, message, ack);
        // The first header speaks for the frame.
        let header = header_of(message, ack, core::mem::take(&mut credit));
        if message.pack(&header, &mut packer).is_none() {
            return Added::Failed;
        }
        queue.note_sent();
    }
    let len = packer.len();
    connection.node.stats.inc(Counter::IbTxPacked);
    add(chain, buf.freeze(), len, true)
}

/// Adds the header that is due, or posts the next work request of the first unsent message's operation. Operations may
/// follow each other without a frame and without an end, so the header cannot wait for a frame of theirs.
fn header_or_work_request(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    if header_goes_first(queue) {
        match ack_frame(connection, queue, ack, chain) {
            // A read must not be what the peer hears first.
            Added::Nothing
                if queue.reads_next() && chain.qp().handler().is_awaiting_first_frame() =>
            {
                return Added::Nothing
            }
            // Without memory for it the operation goes first.
            Added::Nothing => {}
            added => return added,
        }
    }
    work_request(connection, queue, chain)
}

/// Posts the next work request of the first unsent message's operation.
fn work_request(
    connection: &Connection,
    queue: &mut TxQueue,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let operation = queue
        .unsent
        .front_mut()
        .and_then(|it| it.ops.operation.as_mut());
    let Some(operation) = operation else {
        return Added::Nothing;
    };
    operation.take_turn(&mut queue.last_operation);
    let events = &chain.qp().handler().events;
    let posted = if !events.serves_reads() && operation.refuse_unserved() {
        Posted::Never
    } else {
        operation.post_next(|item| chain.operate(item))
    };
    let finished = match posted {
        Posted::Yes => operation.behind == FollowUp::Nothing && !operation.is_waiting(),
        Posted::Never => {
            connection.note_drop(Counter::SendDropOperation, 1);
            true
        }
        Posted::Failed => return Added::Failed,
    };
    if finished {
        if let Some(message) = queue.unsent.pop_front() {
            queue.finished.push_back(message);
        }
    }
    Added::WorkRequest
}

/// Adds the next fragment of the first unsent message.
fn message_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let Some(message) = queue.unsent.front_mut() else {
        return Added::Nothing;
    };
    if message.fragment == 0 {
        set_flags(connection, &mut queue.state, message, ack);
    }
    let context = chain.qp().handler();
    let size = context.events.fragment();
    let Some(part) = wire::fragment(message.len, message.fragment, size) else {
        return Added::Failed;
    };
    let header = header_of(message, ack, tell(connection, &mut queue.credits));
    let pools = &context.device.pools;
    let Some((buf, copied)) = message.fragment_to_post(&header, part, size, pools) else {
        return Added::Failed;
    };
    let item = SendItem {
        buf,
        len: part.len.saturating_add(Header::LEN as u32),
        solicited: part.last,
        fence: message.fragment == 0 && message.is_fenced(),
    };
    message.fragment = message.fragment.saturating_add(1);
    let added = push(chain, item);
    if part.last {
        queue.note_sent();
    }
    match added {
        Added::Frame if copied => Added::Copy(part.len),
        added => added,
    }
}

/// Adds the next fragment of this node's congestion map.
fn congestion_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let context = chain.qp().handler();
    let offset = CONG_MAP_BYTES.saturating_sub(queue.cong_left);
    let len = queue.cong_left.min(context.events.fragment().bytes());
    let Ok(mut buf) = context.device.pools.alloc_send(len, Context::Atomic) else {
        // Without its map the peer would not hold back, or never go on: reconnect and try again.
        connection.note_drop(Counter::CongUpdateFailed, 1);
        return Added::Failed;
    };
    let mut header = Header::congestion_update(ack, connection.generation);
    header.credit = tell(connection, &mut queue.credits);
    let (head, rest) = match buf.bytes_mut().split_first_chunk_mut() {
        Some(parts) => parts,
        None => return Added::Failed,
    };
    header.emit(head);
    let Some(piece) = rest.get_mut(..len as usize) else {
        return Added::Failed;
    };
    let key = &connection.key;
    let place = cong::Place {
        net: key.net,
        addr: key.laddr,
        scope: key.local_scope(),
    };
    connection.node.cong.copy_fragment(place, offset, piece);
    queue.cong_left = queue.cong_left.saturating_sub(len);
    let last = queue.cong_left == 0;
    if last && core::mem::take(&mut queue.cong_again) {
        queue.cong_left = CONG_MAP_BYTES;
    }
    add(
        chain,
        buf.freeze(),
        len.saturating_add(Header::LEN as u32),
        last,
    )
}

/// Adds a header that only acknowledges, and tells of receives.
fn ack_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let stats = &connection.node.stats;
    let pools = &chain.qp().handler().device.pools;
    let Ok(mut buf) = pools.alloc_send(0, Context::Atomic) else {
        // It stays due: the next frame carries it, or it is tried again when there may be memory. Not at
        // once, or whoever tends would do nothing else meanwhile.
        stats.inc(Counter::IbAckSendFailure);
        chain.qp().handler().tend_soon();
        return Added::Nothing;
    };
    let header = Header {
        ack,
        credit: tell(connection, &mut queue.credits),
        ..Header::default()
    };
    let Some(head) = buf.bytes_mut().first_chunk_mut() else {
        return Added::Failed;
    };
    header.emit(head);
    queue.ack_due = false;
    stats.inc(Counter::IbAckSent);
    add(chain, buf.freeze(), Header::LEN as u32, true)
}
