// SPDX-License-Identifier: GPL-2.0

//! Receive path of a connection, from frames to messages in the queues of sockets.
//!
//! A frame stays in its receive buffer. The buffer is returned for posting if its payload was
//! copied, or goes to the reader with the message. A message is acknowledged once it is in the
//! queue of its socket, or was dropped for good.
//!
//! The peer controls all content of a frame. A frame that violates a rule ends the connection, and
//! is counted and logged with the rule. A message that violates a rule is never delivered; those
//! before it in the same frame are.

use super::Connection;
use crate::kapi::{
    net::{IpBits, Sock},
    print::pr_warn_ratelimited,
    rdma::DeviceId,
    sync::{Item, Peek},
};
use crate::msg::{Message, PongSlot};
use crate::proto::{
    packed::{SplitError, Unpacker},
    rdma::RdmaExthdrs,
    rx::{Position, RecvState, RxError, Step},
    tx::AckError,
    wire::{Header, HeaderError, PING_PORT, PROBE_PORT},
};
use crate::recv_pool::BufMut;
use crate::socket::{BindKey, Incoming, MsgMeta, Payload, Socket};
use crate::stats::Counter;
use kernel::{
    fmt,
    prelude::*,
    sync::{aref::ARef, atomic::Relaxed, Arc},
};

/// Message of which some fragments have arrived.
struct Reassembly {
    header: Header,
    bufs: KVec<BufMut>,
    /// Payload bytes of every fragment except the last.
    size: u32,
    /// There was no memory. The rest is received, and the message is not delivered.
    failed: bool,
    meta: Option<KBox<MsgMeta>>,
}

/// Receive side of a connection.
pub(super) struct RecvSide {
    state: RecvState,
    partial: Option<Reassembly>,
}

impl RecvSide {
    pub(super) const fn new() -> Self {
        Self {
            state: RecvState::new(),
            partial: None,
        }
    }

    /// Continues at the position of an earlier connection to the peer. Called before anything
    /// arrives.
    pub(super) fn resume(&mut self, position: Position) {
        self.state = RecvState::at(position);
    }

    pub(super) fn position(&self) -> Position {
        self.state.position()
    }

    /// Returns `true` if the peer runs this module.
    pub(super) fn peer_is_like_us(&self) -> bool {
        self.state.tells_generation()
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.state.next_sequence()
    }

    /// Returns `true` if no message has ever arrived.
    pub(super) fn is_unused(&self) -> bool {
        self.state.is_unused()
    }

    /// Returns `true` if a message has arrived in part.
    pub(super) fn has_partial(&self) -> bool {
        self.partial.is_some()
    }
}

/// Reason to end the connection: the rule that the peer violated, or a lack of memory.
#[derive(Debug)]
pub(crate) enum Violation {
    /// The frame is shorter than a header. The value is its length in bytes.
    Short(usize),
    Header(HeaderError),
    /// The packed frame cannot be split to its end.
    Packed(SplitError),
    Fragment(RxError),
    Ack(AckError),
    /// There was no memory for a message, so the peer has to send it again. No rule was violated.
    NoMemory,
    /// The frame arrived after a violation.
    Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(len) => {
                f.write_fmt(fmt!("a frame of {} bytes has no room for a header", len))
            }
            Self::Header(error) => f.write_fmt(fmt!("bad header: {:?}", error)),
            Self::Packed(error) => f.write_fmt(fmt!("bad frame of several messages: {:?}", error)),
            Self::Fragment(error) => f.write_fmt(fmt!("bad fragment: {:?}", error)),
            Self::Ack(error) => f.write_fmt(fmt!(
                "it acknowledged message {}, but the last one sent is {}",
                error.ack,
                error.sent
            )),
            Self::NoMemory => f.write_fmt(fmt!("no memory to receive")),
            Self::Broken => f.write_fmt(fmt!("it is broken already")),
        }
    }
}

impl Violation {
    fn counter(&self) -> Counter {
        match self {
            Self::Header(HeaderError::Checksum) => Counter::RecvDropBadChecksum,
            Self::Packed(SplitError::Header(HeaderError::Checksum)) => Counter::RecvDropBadChecksum,
            Self::Packed(SplitError::Short(_) | SplitError::Cut(..) | SplitError::Long(_)) => {
                Counter::RecvDropBadFragment
            }
            Self::Short(_) | Self::Header(_) | Self::Packed(_) => Counter::RecvDropBadHeader,
            Self::Fragment(_) => Counter::RecvDropBadFragment,
            Self::Ack(_) => Counter::RecvDropBadAck,
            Self::NoMemory => Counter::RecvDropNoMemory,
            Self::Broken => Counter::RecvDropBroken,
        }
    }
}

/// A message, or a fragment of one.
enum ReceivedPiece<'a> {
    /// In a buffer, behind a header. The number is the length of both in bytes.
    Frame(BufMut, usize),
    /// Payload of a whole message in a packed frame.
    Shared(&'a [u8]),
}

impl ReceivedPiece<'_> {
    fn payload(&self) -> &[u8] {
        match self {
            Self::Frame(buf, len) => buf.bytes().get(Header::LEN..*len).unwrap_or(&[]),
            Self::Shared(payload) => payload,
        }
    }

    /// Returns `true` if copying the payload is better than giving the buffer to the reader.
    fn is_to_be_copied(&self) -> bool {
        match self {
            // The user is charged for the whole buffer, so it is kept only if a quarter of it is
            // used.
            Self::Frame(buf, _) => self.payload().len() < buf.capacity() / 4,
            Self::Shared(_) => true,
        }
    }

    /// Returns the buffer, if there is one.
    fn into_buf(self) -> Option<BufMut> {
        match self {
            Self::Frame(buf, _) => Some(buf),
            Self::Shared(_) => None,
        }
    }
}

/// Result of a frame or a message in it.
enum Complete {
    Nothing,
    Message(Item<Incoming>),
    /// A message that was delivered before.
    Duplicate,
    Ping,
}

impl Connection {
    /// Receives a frame of `len` bytes that arrived on `device`.
    ///
    /// Returns the buffer if it can be posted again, and the number of messages in it.
    ///
    /// # Errors
    ///
    /// - [`Violation`]: the caller must end the connection.
    ///
    /// # Context
    ///
    /// Softirq; frames of one connection arrive one by one.
    pub(crate) fn receive(
        self: &Arc<Self>,
        buf: BufMut,
        len: u32,
        device: DeviceId,
    ) -> Result<(Option<BufMut>, u32), Violation> {
        self.try_receive(buf, len as usize, device)
            .inspect_err(|violation| {
                self.note_drop(violation.counter(), 1);
                if !matches!(violation, Violation::Broken) {
                    self.rx_failed.store(true, Relaxed);
                    pr_warn_ratelimited!("{}: dropping the connection: {}\n", self.key, violation);
                }
            })
    }

    fn try_receive(
        self: &Arc<Self>,
        buf: BufMut,
        len: usize,
        device: DeviceId,
    ) -> Result<(Option<BufMut>, u32), Violation> {
        if self.rx_failed.peek() {
            return Err(Violation::Broken);
        }
        let frame = buf.bytes().get(..len).ok_or(Violation::Short(0))?;
        let (header, payload) = frame
            .split_first_chunk::<{ Header::LEN }>()
            .ok_or(Violation::Short(len))?;
        let header = Header::parse(header).map_err(Violation::Header)?;
        self.note_credits(header.credit);
        if payload.len() <= header.len as usize {
            let buf = self.take(&header, ReceivedPiece::Frame(buf, len), device)?;
            return Ok((buf, 1));
        }
        self.node.stats.inc(Counter::IbRxPacked);
        let mut count = 0u32;
        for message in Unpacker::new(frame) {
            let (header, payload) = message.map_err(Violation::Packed)?;
            self.take(&header, ReceivedPiece::Shared(payload), device)?;
            count = count.wrapping_add(1);
        }
        Ok((Some(buf), count))
    }

    /// Receives a message or a fragment of one. Returns its buffer, if it has one that can be
    /// posted again.
    fn take(
        self: &Arc<Self>,
        header: &Header,
        piece: ReceivedPiece<'_>,
        device: DeviceId,
    ) -> Result<Option<BufMut>, Violation> {
        // First, because a wrong acknowledgement must not cost the message that carries it.
        self.note_ack(header)?;
        let mut guard = self.rx.lock();
        let rx = &mut *guard;
        // If there is no memory for the message, it counts as not arrived and the peer sends it
        // again.
        let before = rx.state.clone();
        let step = rx
            .state
            .handle(header, piece.payload().len())
            .map_err(Violation::Fragment)?;
        let (complete, recycle) = match step {
            Step::PureAck => {
                self.node.stats.inc(Counter::IbAckReceived);
                (Complete::Nothing, piece.into_buf())
            }
            Step::Congestion { offset, last } => {
                self.peer_accepts_packed
                    .store(rx.state.takes_packed(), Relaxed);
                drop(guard);
                self.update_remote(offset, piece.payload(), last);
                return Ok(piece.into_buf());
            }
            Step::Data {
                last, duplicate, ..
            } if duplicate || header.dport == PING_PORT || is_probe_answer(header) => {
                let complete = match (last, duplicate) {
                    (false, _) => Complete::Nothing,
                    (true, true) => Complete::Duplicate,
                    (true, false) if header.dport == PING_PORT => Complete::Ping,
                    // An answer to a probe. Its frame has used a posted receive, and that was its
                    // only purpose.
                    (true, false) => Complete::Nothing,
                };
                (complete, piece.into_buf())
            }
            Step::Data { first, last, .. } => match self.assemble(rx, header, piece, first, last) {
                Ok(done) => done,
                Err(violation) => {
                    rx.state = before;
                    return Err(violation);
                }
            },
        };
        let target = match &complete {
            Complete::Message(_) => self.target(header),
            _ => None,
        };
        if rx.state.take_ack_required() {
            self.node.stats.inc(Counter::RecvAckRequired);
            self.ack_wanted.store(true, Relaxed);
        }
        let ack = rx.state.ack();
        drop(guard);

        match complete {
            Complete::Nothing => {}
            Complete::Duplicate => self.note_drop(Counter::RecvDropOldSeq, 1),
            Complete::Ping => self.answer_ping(header),
            Complete::Message(mut incoming) => match target {
                Some(sk) => {
                    if let Some(rkey) = incoming.meta.as_ref().and_then(|it| it.extras.used) {
                        sk.memory.used(device, rkey);
                    }
                    match sk.admit(&mut incoming) {
                        Ok(()) => sk.deliver(incoming),
                        Err(why) => self.refuse_to_deliver(&sk, why),
                    }
                }
                None => self.note_drop(Counter::RecvDropNoSock, 1),
            },
        }
        // Stored last, so that only messages in the queue of their socket, or dropped for good, are
        // acknowledged.
        self.ack.store(ack, Relaxed);
        Ok(recycle)
    }

    /// Drops a message for a socket that accepts no more, and reports that to its reader. The
    /// connection continues, because other sockets share it.
    #[cold]
    fn refuse_to_deliver(&self, sk: &Sock<Socket>, why: Counter) {
        self.note_drop(why, 1);
        sk.note_lost();
    }

    /// Handles the acknowledgement that each header carries. 0 is none. An acknowledgement that is
    /// not new takes no lock.
    fn note_ack(self: &Arc<Self>, header: &Header) -> Result<(), Violation> {
        if header.ack <= self.acked.peek() {
            return Ok(());
        }
        self.handle_ack(header.ack).map_err(Violation::Ack)
    }

    /// Adds a fragment to its message. Called with the receive side locked.
    fn assemble(
        &self,
        rx: &mut RecvSide,
        header: &Header,
        piece: ReceivedPiece<'_>,
        first: bool,
        last: bool,
    ) -> Result<(Complete, Option<BufMut>), Violation> {
        if first && last {
            let mut incoming = self.incoming(header, self.node.begin_stamps())?;
            let bytes = piece.payload();
            let copied =
                incoming.inline.set(bytes) || piece.is_to_be_copied() && incoming.set_copy(bytes);
            if copied {
                return Ok((Complete::Message(incoming), piece.into_buf()));
            }
            incoming.payload = Payload::One(piece.into_buf().ok_or(Violation::NoMemory)?);
            return Ok((Complete::Message(incoming), None));
        }
        if first {
            // The payload is short. It is not empty either, because then the message would end with
            // it. The compiler does not know that, and would add a panic for a division by zero.
            let size = u32::try_from(piece.payload().len())
                .unwrap_or(u32::MAX)
                .max(1);
            let count = header.len.div_ceil(size);
            let bufs =
                KVec::with_capacity(count as usize, GFP_ATOMIC).map_err(|_| Violation::NoMemory)?;
            rx.partial = Some(Reassembly {
                header: *header,
                bufs,
                size,
                failed: false,
                meta: self.node.begin_stamps(),
            });
        }
        // `proto::rx` has seen the first fragment, otherwise it would have returned an error.
        // Messages in packed frames are whole.
        let (Some(partial), Some(buf)) = (rx.partial.as_mut(), piece.into_buf()) else {
            return Err(Violation::NoMemory);
        };
        if partial.bufs.push(buf, GFP_ATOMIC).is_err() {
            partial.failed = true;
        }
        if !last {
            return Ok((Complete::Nothing, None));
        }
        match rx.partial.take() {
            Some(Reassembly {
                header,
                bufs,
                size,
                failed: false,
                meta,
            }) => {
                let mut incoming = self.incoming(&header, meta)?;
                incoming.payload = Payload::Many(bufs, size);
                Ok((Complete::Message(incoming), None))
            }
            _ => Err(Violation::NoMemory),
        }
    }

    fn incoming(
        &self,
        header: &Header,
        meta: Option<KBox<MsgMeta>>,
    ) -> Result<Item<Incoming>, Violation> {
        let (saddr, sport) = (self.key.faddr, header.sport);
        let scope = self.key.scope;
        let mut incoming = Incoming::new(saddr, sport, header.len, scope, meta, GFP_ATOMIC)
            .map_err(|_| Violation::NoMemory)?;
        incoming.tos = self.key.tos;
        incoming.sequence = header.sequence;
        if let Some(extras) = RdmaExthdrs::read(&header.exthdr) {
            incoming
                .set_extras(extras, GFP_ATOMIC)
                .map_err(|_| Violation::NoMemory)?;
        }
        Ok(incoming)
    }

    /// Answers a ping with an empty message from port 0.
    fn answer_ping(self: &Arc<Self>, header: &Header) {
        // A keepalive has source port 0, so there is no port to answer.
        if header.sport == PING_PORT {
            return;
        }
        if !self.node.tunables.answers_pings() {
            self.note_drop(Counter::RecvDropNoSock, 1);
            return;
        }
        self.node.stats.inc(Counter::RecvPing);
        let pong = match self.room_for_pong(header.sport) {
            Some(pong) => Message::pong(self.pools(), header.sport, pong).ok(),
            None => None,
        };
        if pong.is_some_and(|pong| self.send(pong).is_ok()) {
            self.node.stats.inc(Counter::SendPong);
        } else {
            self.note_drop(Counter::SendPongDropped, 1);
        }
    }

    /// Returns a slot for a pong to a port. `None` if the port is congested, or too many messages
    /// wait for the peer.
    fn room_for_pong(&self, port: u16) -> Option<PongSlot> {
        const MOST: usize = 4096;
        /// With fewer messages on a connection it gets a slot even if pongs for other peers have
        /// used all.
        const FEW: usize = 16;
        if self.is_congested(port) {
            return None;
        }
        let tx = self.tx.lock();
        let backlog = tx.queue.unsent.len().saturating_add(tx.queue.sent.len());
        drop(tx);
        match backlog {
            0..=MOST => self.node.pong_budget.take(backlog < FEW),
            _ => None,
        }
    }

    /// Returns the socket to which a message is addressed.
    fn target(&self, header: &Header) -> Option<ARef<Sock<Socket>>> {
        let key = BindKey {
            addr: IpBits::new(self.key.laddr),
            port: header.dport,
            scope: self.key.local_scope(),
        };
        self.node.binds.lookup(self.key.net, &key)
    }

    /// Returns `true` if a message has arrived in part.
    pub(crate) fn in_reassembly(&self) -> bool {
        self.rx.lock().has_partial()
    }

    fn update_remote(&self, offset: u32, piece: &[u8], last: bool) {
        match self.remote.update(offset, piece) {
            Ok(0) => {}
            Ok(freed) => self.waiters.wake(freed),
            Err(_) => self.note_drop(Counter::CongUpdateFailed, 1),
        }
        if last {
            self.node.stats.inc(Counter::CongUpdateReceived);
        }
    }

    /// Resets the receive state after the end of an endpoint. The peer sends an incomplete message
    /// again, from its start.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn forget_partial(&self) {
        let heard = self.tx.lock().queue.state.take_heard();
        let mut rx = self.rx.lock();
        rx.state.peer_heard(heard);
        rx.state.link_lost();
        let partial = rx.partial.take();
        drop(rx);
        drop(partial);
        self.rx_failed.store(false, Relaxed);
        self.peer_accepts_packed.store(false, Relaxed);
        self.ack.store(0, Relaxed);
        // A map may have arrived after the connection went down, or before it was up.
        self.forget_map();
    }

    /// Drops the peer's congestion map, and wakes all waiters. The next connection begins with a
    /// new map, and until then no port counts as congested.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn forget_map(&self) {
        self.remote.clear();
        self.waiters.wake_all();
    }
}

/// Returns `true` for an answer to [`Connection::probe`].
fn is_probe_answer(header: &Header) -> bool {
    header.dport == PROBE_PORT && header.sport == PING_PORT
}
