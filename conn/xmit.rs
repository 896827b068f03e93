// SPDX-License-Identifier: GPL-2.0

//! Transmission: builds the frames of a connection and hands them to its link.
//!
//! [`transmit`] is called with `Path::tx` held. `proto/xmit.rs` says what goes next. The link
//! passes a [`FrameSink`]: it takes frames and work requests as long as the link has room, and
//! gives them to the device together. If there is no room, or the peer has granted no credits, the
//! rest stays queued; the event that changes this transmits again.
//!
//! Messages bring their buffers. A header alone, the congestion map, and a fragment that has to be
//! copied need another one. Without a buffer they wait: the link makes room, and transmits again.
//! `Pools::alloc_message` leaves a few buffers of each pool for these frames. A frame with one of
//! those reports its completion, so that the buffer is free for the next frame.
//!
//! The link keeps a handle of a posted buffer until it completes, and the message keeps one for a
//! replay. Errors: the link is unusable if a frame cannot be built or posted.

use super::{
    tx_queue::TxQueue,
    Connection, //
};
use crate::{
    cong,
    kapi::{
        rdma::{
            OperationItem,
            RejectedOp,
            SendItem, //
        },
        sync::Item, //
    },
    msg::{
        FollowUp,
        FrameError,
        Message,
        Posted, //
    },
    proto::{
        credits::Credits,
        mprds::HandshakeKind,
        packed::{
            self,
            Packer, //
        },
        tx::SendState,
        wire::{
            self,
            Flags,
            FragmentSize,
            Header,
            CONG_MAP_BYTES, //
        },
        xmit::{
            self,
            FirstUnsent,
            LinkRoom,
            NextSend,
            Pause,
            Unsent, //
        }, //
    },
    recv_pool::{
        Context,
        FrameBuf,
        Pools, //
    },
    stats::Counter, //
};
use kernel::prelude::*;

/// Number of operations, or areas of their local memory, after which a transmission ends no other
/// operation without posting it. `Path::tx` is held, and the areas are released in one softirq.
const MOST_ENDED: u32 = 256;

/// Access of a transmission to its link. While it exists, no other context posts to the link.
///
/// # Context
///
/// Any context except hard interrupt.
pub(crate) trait FrameSink {
    /// Returns the room and the rules of the link.
    fn room(&self) -> LinkRoom;

    /// Returns the fragment size.
    fn fragment(&self) -> FragmentSize;

    /// Returns the fragment size for a message whose buffers have fragments of `cut`.
    #[inline]
    fn fragment_of(&self, _cut: FragmentSize) -> FragmentSize {
        self.fragment()
    }

    /// Returns the pools that provide buffers for frames.
    fn pools(&self) -> &Pools;

    /// Returns `true` if the peer may have missed the first frame.
    fn awaits_first_frame(&self) -> bool;

    /// Returns `true` if the peer executes reads and atomic operations.
    fn serves_reads(&self) -> bool;

    /// Adds a frame. If `reports`, its completion is reported.
    ///
    /// # Errors
    ///
    /// An error if the link is unusable.
    fn push(&mut self, item: SendItem, reports: bool) -> Result;

    /// Posts all frames that were added, and then a work request of an operation. Returns the
    /// request if it was not posted.
    fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp>;

    /// Makes the next completion of a send call [`Connection::resume`].
    fn resume_later(&mut self);

    /// Requests a buffer for `len` bytes of payload. When there may be one, the link calls
    /// [`Connection::resume`].
    fn await_buffer(&mut self, len: u32);

    /// Posts all frames that were added.
    ///
    /// # Errors
    ///
    /// Errors of the device, which make the link unusable.
    fn flush(self) -> Result;
}

/// Reason why a link is unusable.
pub(crate) enum XmitError {
    /// A frame could not be built or added.
    Frame,
    /// An operation could not be posted.
    Operation,
    /// Posting the frames failed.
    Post(Error),
}

/// Result of an attempt to add a frame.
enum Added {
    Frame {
        /// Bytes of payload that were copied.
        copied: u32,
    },
    /// A work request that uses the send queue, but no receive of the peer.
    WorkRequest,
    /// There is no buffer for the next fragment. Transmission pauses.
    NoBuffer,
    /// There is nothing to add, or no buffer for a header that can wait.
    Nothing,
    /// The link is unusable.
    Failed(XmitError),
}

/// The queue of a connection, as the rules of `proto/xmit.rs` see it.
struct View<'a> {
    connection: &'a Connection,
    queue: &'a TxQueue,
}

impl Unsent for View<'_> {
    #[inline]
    fn first(&self) -> Option<FirstUnsent> {
        self.queue.unsent.front().map(|first| FirstUnsent {
            is_partially_sent: first.is_partially_sent(),
            has_to_operate: first.has_to_operate(),
            reads_next: first.reads_next(),
        })
    }

    #[inline]
    fn is_map_due(&self) -> bool {
        self.queue.cong_left > 0
    }

    #[inline]
    fn is_header_due(&self) -> bool {
        self.queue.ack_due || self.queue.credits.is_due()
    }

    #[inline]
    fn can_pack(&self) -> bool {
        self.connection.path.peer_accepts_packed() && self.queue.can_pack()
    }

    #[inline]
    fn can_delay(&self) -> bool {
        self.connection.path.peer_accepts_packed() && self.queue.can_delay()
    }

    #[inline]
    fn may_send(&self) -> bool {
        self.queue.credits.may_send()
    }
}

/// Posts what waits in the queue, as far as there is room. `sink` is called only if something
/// waits.
///
/// # Errors
///
/// - [`XmitError`] if the link is unusable.
///
/// # Context
///
/// Any context except hard interrupt, with `Path::tx` held.
#[inline]
pub(crate) fn transmit<S: FrameSink>(
    connection: &Connection,
    queue: &mut TxQueue,
    sink: impl FnOnce() -> S,
) -> Result<(), XmitError> {
    if xmit::is_idle(&View { connection, queue }) {
        return Ok(());
    }
    let mut sink = sink();
    let added = add_frames(connection, queue, &mut sink);
    sink.flush().map_err(XmitError::Post)?;
    added
}

/// Adds frames until there is no room, or nothing to send.
fn add_frames<S: FrameSink>(
    connection: &Connection,
    queue: &mut TxQueue,
    sink: &mut S,
) -> Result<(), XmitError> {
    let ack = connection.path.ack();
    let mut copied = 0u32;
    let mut ended = 0u32;
    loop {
        let view = View { connection, queue };
        match xmit::pause(&view, &sink.room(), copied) {
            None => {}
            Some(Pause::NoCredit) => {
                // A header of the peer that grants credits resumes transmission.
                connection.node.stats.inc(Counter::IbTxThrottle);
                return Ok(());
            }
            Some(pause) => {
                if pause == Pause::NoRoom {
                    connection.count_rdma(Counter::IbTxRingFull);
                }
                sink.resume_later();
                return Ok(());
            }
        }
        match add_next(connection, queue, ack, sink, &mut ended) {
            Added::Frame { copied: bytes } => {
                copied = copied.saturating_add(bytes);
                // Every frame carries an acknowledgement.
                if core::mem::take(&mut queue.ack_due) {
                    connection.count_rdma(Counter::IbAckSendPiggybacked);
                }
                queue.credits.spend();
            }
            Added::WorkRequest => {}
            Added::NoBuffer => {
                // A completion of a send may return a buffer. The link tries again in any case.
                sink.resume_later();
                return header_meanwhile(connection, queue, ack, sink);
            }
            Added::Nothing => return Ok(()),
            Added::Failed(why) => return Err(why),
        }
    }
}

/// Adds a header that is due while a message waits for a buffer. It acknowledges, grants credits,
/// and may ask the device for the completions that return buffers. A stream has no room for it
/// within a message.
#[cold]
fn header_meanwhile(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    sink: &mut impl FrameSink,
) -> Result<(), XmitError> {
    let is_due = View { connection, queue }.is_header_due();
    if connection.is_stream() || !is_due {
        return Ok(());
    }
    match ack_frame(connection, queue, ack, sink) {
        Added::Frame { .. } => queue.credits.spend(),
        Added::Failed(why) => return Err(why),
        _ => {}
    }
    Ok(())
}

/// Adds the next frame, or the next work request of an operation.
fn add_next<S: FrameSink>(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    sink: &mut S,
    ended: &mut u32,
) -> Added {
    let next = xmit::next(&View { connection, queue });
    let added = match next {
        NextSend::Map => congestion_frame(connection, queue, ack, sink),
        NextSend::Packed => packed_frame(connection, queue, ack, sink),
        NextSend::Fragment => message_frame(connection, queue, ack, sink),
        NextSend::Header => ack_frame(connection, queue, ack, sink),
        NextSend::Operation { header_first } => {
            if header_first {
                match ack_frame(connection, queue, ack, sink) {
                    // There is no buffer for the header, so the operation goes first, unless it is
                    // a read that has to follow a frame.
                    Added::Nothing if !read_must_wait(queue, sink) => {}
                    added => return added,
                }
            }
            work_request(connection, queue, sink, ended)
        }
        NextSend::Nothing => Added::Nothing,
    };
    let has_payload = matches!(next, NextSend::Map | NextSend::Packed | NextSend::Fragment);
    if has_payload && matches!(added, Added::Frame { .. }) {
        queue.payload_frames = queue.payload_frames.wrapping_add(1);
    }
    added
}

/// Returns `true` if the next work request is a read that has to wait, because the peer may not
/// have received a frame yet.
#[cold]
fn read_must_wait(queue: &TxQueue, sink: &impl FrameSink) -> bool {
    queue.unsent.front().is_some_and(Message::reads_next) && sink.awaits_first_frame()
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

/// Adds a frame of `len` bytes, for which the link has room. If `solicited`, the device of the peer
/// reports its arrival.
fn add(sink: &mut impl FrameSink, buf: FrameBuf, len: u32, solicited: bool) -> Added {
    let item = SendItem {
        buf: buf.buf.freeze(),
        len,
        solicited,
        fence: false,
    };
    push(sink, item, buf.is_spare)
}

/// Adds a frame. With a spare buffer, see [`FrameBuf`], it reports its completion.
fn push(sink: &mut impl FrameSink, item: SendItem, is_spare: bool) -> Added {
    match sink.push(item, is_spare) {
        Ok(()) => Added::Frame { copied: 0 },
        Err(_) => Added::Failed(XmitError::Frame),
    }
}

/// Sets the flags of a message of which this link has carried nothing yet. Its header acknowledges
/// `ack`.
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
    if message.is_ack_request() {
        // Without `HB_PING` the peer would take this empty header for an acknowledgement alone.
        message.flags = message.flags.with(Flags::HB_PING);
    }
    if message.flags.contains(Flags::ACK_REQUIRED) {
        connection.node.stats.inc(Counter::SendAckRequired);
        state.set_policy(connection.node.tunables.ack_policy());
    }
}

/// Returns the header of the next fragment.
fn header_of(message: &Message, ack: u64, credit: u8) -> Header {
    let (sport, dport) = message.ports();
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
    sink: &mut impl FrameSink,
) -> Added {
    let pools = sink.pools();
    // Not one of the spare buffers: they are for frames that can be built in no other way.
    let Ok(mut buf) = pools.alloc_message(packed::ROOM, Context::Atomic) else {
        // A message that is sent alone has a buffer already.
        return message_frame(connection, queue, ack, sink);
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
            return Added::Failed(XmitError::Frame);
        }
        queue.note_sent();
    }
    let len = packer.len();
    connection.node.stats.inc(Counter::IbTxPacked);
    let buf = FrameBuf {
        buf,
        is_spare: false,
    };
    add(sink, buf, len, true)
}

/// Posts the next work request of the first unsent message's operation.
fn work_request(
    connection: &Connection,
    queue: &mut TxQueue,
    sink: &mut impl FrameSink,
    ended: &mut u32,
) -> Added {
    let operation = queue
        .unsent
        .front_mut()
        .and_then(|it| it.ops.operation.as_mut());
    let Some(operation) = operation else {
        return Added::Nothing;
    };
    operation.order_notification(&mut queue.last_operation);
    let cannot_post = !sink.serves_reads() && operation.needs_responder();
    if *ended >= MOST_ENDED && cannot_post {
        queue.is_cut_short = true;
        return Added::Nothing;
    }
    // Others are posted, and the first refusal ends the link.
    let is_outdated = *ended < MOST_ENDED && connection.fault_limiter.ends(operation);
    if cannot_post && !is_outdated {
        operation.refuse();
    }
    let is_refused = is_outdated || cannot_post;
    if is_refused {
        *ended = ended.saturating_add(operation.areas().max(1));
    }
    #[cfg(rds_kunit)]
    {
        queue.most_ended = queue.most_ended.max(*ended);
    }
    let posted = if is_refused {
        Posted::Never
    } else {
        operation.post_next(|item| sink.operate(item))
    };
    let finished = match posted {
        Posted::Yes => operation.behind == FollowUp::Nothing && !operation.is_waiting(),
        Posted::Never => {
            connection.note_drop(Counter::SendDropOperation, 1);
            true
        }
        Posted::Failed => return Added::Failed(XmitError::Operation),
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
    sink: &mut impl FrameSink,
) -> Added {
    let Some(message) = queue.unsent.front_mut() else {
        return Added::Nothing;
    };
    let size = sink.fragment_of(message.cut());
    let first = message.fragment == 0;
    let Some(part) = wire::fragment(message.len, message.fragment, size) else {
        return Added::Failed(XmitError::Frame);
    };
    let frame = match message.next_frame(part, size, sink.pools()) {
        Ok(frame) => frame,
        Err(FrameError::NoBuffer) => {
            connection.count_rdma(Counter::IbTxAllocWait);
            sink.await_buffer(part.len);
            return Added::NoBuffer;
        }
        Err(FrameError::InUse) => return Added::Failed(XmitError::Frame),
    };
    let (copied, is_spare) = (frame.copied, frame.is_spare);
    // From here on nothing may fail for lack of a buffer, because this is done once for each frame.
    if first {
        set_flags(connection, &mut queue.state, message, ack);
    }
    let mut header = header_of(
        message,
        ack,
        take_advertisement(connection, &mut queue.credits),
    );
    // The content is that of the moment, also if the message is sent again.
    let handshake = HandshakeKind::of(header.sport, header.dport);
    if let Some(handshake) = handshake.and_then(|kind| connection.path.handshake(kind)) {
        header.exthdr = handshake.emit();
    }
    let Some(buf) = message.finish_frame(frame, &header) else {
        return Added::Failed(XmitError::Frame);
    };
    let item = SendItem {
        buf,
        len: part.len.saturating_add(Header::LEN as u32),
        solicited: part.last,
        fence: first && message.is_fenced(),
    };
    let added = push(sink, item, is_spare);
    if part.last {
        queue.note_sent();
    }
    match added {
        Added::Frame { .. } if copied => Added::Frame { copied: part.len },
        added => added,
    }
}

/// Adds the next fragment of the congestion map of the connection's local address.
fn congestion_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    sink: &mut impl FrameSink,
) -> Added {
    let offset = CONG_MAP_BYTES.saturating_sub(queue.cong_left);
    let len = queue.cong_left.min(sink.fragment().bytes());
    let Some(mut buf) = sink.pools().alloc_frame(len) else {
        connection.count_rdma(Counter::IbTxAllocWait);
        sink.await_buffer(len);
        return Added::NoBuffer;
    };
    let path = connection.key.path;
    let mut header = Header::congestion_update(ack, connection.generation, path);
    header.credit = take_advertisement(connection, &mut queue.credits);
    let (head, rest) = match buf.buf.bytes_mut().split_first_chunk_mut() {
        Some(parts) => parts,
        None => return Added::Failed(XmitError::Frame),
    };
    header.emit(head);
    let Some(piece) = rest.get_mut(..len as usize) else {
        return Added::Failed(XmitError::Frame);
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
    add(sink, buf, len.saturating_add(Header::LEN as u32), last)
}

/// Adds a header without a message: an acknowledgement that also grants credits.
fn ack_frame(
    connection: &Connection,
    queue: &mut TxQueue,
    ack: u64,
    sink: &mut impl FrameSink,
) -> Added {
    let pools = sink.pools();
    let Some(mut buf) = pools.alloc_frame(0) else {
        // The header stays due. The next frame carries its content, or the link tries again soon.
        connection.count_rdma(Counter::IbAckSendFailure);
        sink.await_buffer(0);
        return Added::Nothing;
    };
    let header = Header {
        ack,
        credit: take_advertisement(connection, &mut queue.credits),
        ..Header::default()
    };
    let Some(head) = buf.buf.bytes_mut().first_chunk_mut() else {
        return Added::Failed(XmitError::Frame);
    };
    header.emit(head);
    queue.ack_due = false;
    connection.count_rdma(Counter::IbAckSent);
    add(sink, buf, Header::LEN as u32, true)
}
