// SPDX-License-Identifier: GPL-2.0

//! Transmission: posts frames and operations from the connection's queue to the queue pair.
//!
//! The connection calls [`Link::transmit`] with its queue locked. Each frame is one work request,
//! whose buffer belongs to the queue pair until it completes. The work requests are chained and
//! posted at once. If there is no room, or the peer has granted no credits, the rest stays queued;
//! the event that changes this calls `transmit` again. The endpoint is given up if posting fails.
//!
//! Messages bring their buffers. A header alone, the congestion map, and a fragment that has to be
//! copied need another one. Without a buffer they wait: the device's worker, which may sleep, makes
//! room and calls `transmit` again. Queued messages leave some buffers for this. A frame with one
//! of those reports its completion, so that the buffer is free for the next frame.

use super::qp_context::QpContext;
use crate::cong;
use crate::conn::{AsIs, Connection, Link, TxQueue};
use crate::kapi::{
    print::{pr_change_ratelimited, pr_info_ratelimited},
    rdma::{Qp, SendChain, SendItem, MAX_UNSIGNALED},
};
use crate::msg::{FollowUp, FrameError, Message, Posted};
use crate::proto::{
    credits::Credits,
    info::RdmaPath,
    keepalive::LinkActivity,
    packed::{self, Packer},
    tx::SendState,
    wire::{self, Flags, FragmentSize, Header, CONG_MAP_BYTES, PING_PORT},
};
use crate::recv_pool::{Context, FrameBuf};
use crate::stats::Counter;
use kernel::{fmt, prelude::*, sync::atomic::Relaxed};

/// With this many frames in flight, short messages wait until they fill a frame together, or some
/// of the frames are done. That takes at most one round trip. The device is busy meanwhile.
const PACKING_THRESHOLD: u32 = 2 * MAX_UNSIGNALED;

/// Bytes of payload that one call copies while softirqs are off. It is exceeded a little if few
/// frames are in flight. Payload is copied if it was cut for another fragment size or is in another
/// device's memory. The rest follows when some of the frames are done.
const COPIED_AT_ONCE: u32 = 128 << 10;

/// Result of an attempt to add a frame.
enum Added {
    Frame {
        /// Bytes of payload that were copied.
        copied: u32,
    },
    /// A work request that uses the send queue, but no receive of the peer.
    WorkRequest,
    /// There is no buffer for the frame that goes next.
    NoBuffer,
    /// There is nothing to add.
    Nothing,
    /// The endpoint is unusable.
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
        // The text is that of C RDS, because programs search for it.
        pr_change_ratelimited!(
            connection.log_limit,
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
                // The completion handler takes the lock of `chain` to make room, and checks
                // `blocked` after that.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if chain.in_flight() >= PACKING_THRESHOLD
                && connection.peer_accepts_packed()
                && queue.can_delay()
            {
                // At least one of those frames reports its completion, which resumes transmission.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if copied >= COPIED_AT_ONCE && chain.in_flight() >= MAX_UNSIGNALED {
                context.blocked.store(true, Relaxed);
                break false;
            }
            if context.config.wait_for_reads && has_to_wait(context, queue, &chain) {
                // The first frame of the peer, or the completion of the READs, resumes
                // transmission.
                context.blocked.store(true, Relaxed);
                break false;
            }
            if !queue.credits.may_send() {
                // A header of the peer that grants credits resumes transmission.
                connection.node.stats.inc(Counter::IbTxThrottle);
                break false;
            }
            match next_frame(connection, queue, ack, &mut chain) {
                Added::Frame { copied: bytes } => {
                    copied = copied.saturating_add(bytes);
                    // Every frame carries an acknowledgement.
                    if core::mem::take(&mut queue.ack_due) {
                        connection.node.stats.inc(Counter::IbAckSendPiggybacked);
                    }
                    queue.credits.spend();
                }
                Added::WorkRequest => {}
                Added::NoBuffer => {
                    // A completion may return a buffer. The worker tries again in any case.
                    context.blocked.store(true, Relaxed);
                    break false;
                }
                Added::Nothing => break false,
                Added::Failed => break true,
            }
        };
        if let Err(error) = chain.post() {
            connection.note_failure("post", error);
            pr_info_ratelimited!(
                connection.log_limit,
                "{}: posting a send failed: {:?}\n",
                connection.key,
                error
            );
            context.fail();
        } else if failed {
            context.give_up("operation", EIO);
        }
    }
}

/// Returns `true` if a header is sent before the next operation. It is never sent within an
/// operation: READs may be outstanding then, only the last of which is sure to report its
/// completion.
fn header_goes_first(queue: &TxQueue) -> bool {
    queue.is_header_due() && !queue.unsent.front().is_some_and(Message::is_partially_sent)
}

/// Returns `true` if the next frame or operation must not be posted yet, on a device that allows
/// nothing but READs behind a READ.
fn has_to_wait(context: &QpContext, queue: &TxQueue, chain: &SendChain<'_, QpContext>) -> bool {
    if queue.reads_next() && !header_goes_first(queue) {
        // A READ waits until the peer is known to have received a frame.
        context.is_awaiting_first_frame()
    } else {
        chain.awaits_reads()
    }
}

/// Takes the credits that the header of the next frame grants.
#[inline]
fn take_advertisement(connection: &Connection, credits: &mut Credits) -> u8 {
    let credit = credits.take_advertisement();
    if credit > 0 {
        connection.node.stats.inc(Counter::IbTxCreditUpdates);
    }
    credit
}

/// Adds a frame of `len` bytes. The caller has checked that there is room.
fn add(chain: &mut SendChain<'_, QpContext>, buf: FrameBuf, len: u32, solicited: bool) -> Added {
    let item = SendItem {
        buf: buf.buf.freeze(),
        len,
        solicited,
        fence: false,
    };
    push(chain, item, buf.is_spare)
}

/// Adds a frame. With a spare buffer, see [`FrameBuf`], it reports its completion.
fn push(chain: &mut SendChain<'_, QpContext>, item: SendItem, is_spare: bool) -> Added {
    if is_spare {
        chain.report_next();
    }
    match chain.push(item) {
        Ok(()) => Added::Frame { copied: 0 },
        Err(_) => Added::Failed,
    }
}

/// Adds the next frame of the queue, or the next work request of an operation.
fn next_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let is_partially_sent = queue.unsent.front().is_some_and(Message::is_partially_sent);
    if queue.cong_left > 0 && !is_partially_sent {
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

/// Sets the flags of a message of which nothing was sent yet. Its header acknowledges `ack`.
fn set_flags(connection: &Connection, state: &mut SendState, message: &mut Message, ack: u64) {
    state.note_piggyback(message.sequence, ack);
    message.flags = if state.was_sent(message.sequence) {
        state.retransmit()
    } else {
        let pressure = message.pressure();
        state.transmit(message.sequence, message.len, pressure)
    };
    if message.wants_ack() {
        message.flags = message.flags.with(Flags::ACK_REQUIRED);
    }
    if message.is_probe() {
        // Without the flag the peer would take the header for an acknowledgement alone.
        message.flags = message.flags.with(Flags::HB_PING);
    }
    if message.flags.contains(Flags::ACK_REQUIRED) {
        connection.node.stats.inc(Counter::SendAckRequired);
        state.set_policy(connection.node.tunables.ack_policy());
    }
}

fn header_of(message: &Message, ack: u64, credit: u8) -> Header {
    let (sport, dport) = if message.is_probe() {
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

/// Adds a packed frame with as many of the first unsent messages as it has room for.
fn packed_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let pools = &chain.qp().handler().device.pools;
    // The spare buffers are for frames that cannot do without.
    let Ok(mut buf) = pools.alloc_message(packed::ROOM, Context::Atomic) else {
        // A message that is sent alone has a buffer already.
        return message_frame(connection, queue, ack, chain);
    };
    let mut packer = Packer::new(buf.bytes_mut());
    let mut credit = take_advertisement(connection, &mut queue.credits);
    while let Some(message) = queue.unsent.front_mut() {
        if !message.is_packable() || !packer.has_room(message.len) {
            break;
        }
        set_flags(connection, &mut queue.state, message, ack);
        // Only the first header of a packed frame grants credits.
        let header = header_of(message, ack, core::mem::take(&mut credit));
        if message.pack(&header, &mut packer).is_none() {
            return Added::Failed;
        }
        queue.note_sent();
    }
    let len = packer.len();
    connection.node.stats.inc(Counter::IbTxPacked);
    let buf = FrameBuf {
        buf,
        is_spare: false,
    };
    add(chain, buf, len, true)
}

/// Adds the header that is due, or posts the next work request of the first unsent message's
/// operation. Operations may follow each other indefinitely without a frame, so the header cannot
/// wait for one.
fn header_or_work_request(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    if header_goes_first(queue) {
        match ack_frame(connection, queue, ack, chain) {
            // The peer must not receive a READ before the first frame.
            Added::Nothing
                if queue.reads_next() && chain.qp().handler().is_awaiting_first_frame() =>
            {
                return Added::Nothing
            }
            // There is no memory for the header, so the operation goes first.
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
    operation.order_notification(&mut queue.last_operation);
    let events = &chain.qp().handler().events;
    let posted = if !events.serves_reads() && operation.refuse_without_responder() {
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
    let context = chain.qp().handler();
    let size = context.events.fragment();
    let first = message.fragment == 0;
    let Some(part) = wire::fragment(message.len, message.fragment, size) else {
        return Added::Failed;
    };
    let frame = match message.next_frame(part, size, &context.device.pools) {
        Ok(frame) => frame,
        Err(FrameError::NoBuffer) => {
            connection.node.stats.inc(Counter::IbTxAllocWait);
            context.await_buffer(part.len);
            return Added::NoBuffer;
        }
        Err(FrameError::InUse) => return Added::Failed,
    };
    let (copied, is_spare) = (frame.copied, frame.is_spare);
    // What follows is done once for each frame, so there is a buffer for it already.
    if first {
        set_flags(connection, &mut queue.state, message, ack);
    }
    let header = header_of(
        message,
        ack,
        take_advertisement(connection, &mut queue.credits),
    );
    let Some(buf) = message.finish_frame(frame, &header) else {
        return Added::Failed;
    };
    let item = SendItem {
        buf,
        len: part.len.saturating_add(Header::LEN as u32),
        solicited: part.last,
        fence: first && message.is_fenced(),
    };
    let added = push(chain, item, is_spare);
    if part.last {
        queue.note_sent();
    }
    match added {
        Added::Frame { .. } if copied => Added::Frame { copied: part.len },
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
    let Some(mut buf) = context.device.pools.alloc_frame(len) else {
        connection.node.stats.inc(Counter::IbTxAllocWait);
        context.await_buffer(len);
        return Added::NoBuffer;
    };
    let mut header = Header::congestion_update(ack, connection.generation);
    header.credit = take_advertisement(connection, &mut queue.credits);
    let (head, rest) = match buf.buf.bytes_mut().split_first_chunk_mut() {
        Some(parts) => parts,
        None => return Added::Failed,
    };
    header.emit(head);
    let Some(piece) = rest.get_mut(..len as usize) else {
        return Added::Failed;
    };
    let key = &connection.key;
    let place = cong::MapKey {
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
    add(chain, buf, len.saturating_add(Header::LEN as u32), last)
}

/// Adds a header without a message: an acknowledgement that also grants credits.
fn ack_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    chain: &mut SendChain<'_, QpContext>,
) -> Added {
    let stats = &connection.node.stats;
    let pools = &chain.qp().handler().device.pools;
    let Some(mut buf) = pools.alloc_frame(0) else {
        // The acknowledgement stays due. The next frame carries it, or the device's worker tries
        // again soon. An immediate retry would keep that worker busy until there is memory.
        stats.inc(Counter::IbAckSendFailure);
        chain.qp().handler().await_buffer(0);
        return Added::Nothing;
    };
    let header = Header {
        ack,
        credit: take_advertisement(connection, &mut queue.credits),
        ..Header::default()
    };
    let Some(head) = buf.buf.bytes_mut().first_chunk_mut() else {
        return Added::Failed;
    };
    header.emit(head);
    queue.ack_due = false;
    stats.inc(Counter::IbAckSent);
    add(chain, buf, Header::LEN as u32, true)
}
