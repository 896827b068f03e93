// SPDX-License-Identifier: GPL-2.0

//! What arrives on a connection: from frames to messages in the queues of sockets.
//!
//! Everything in a frame comes from the peer. A frame that breaks a rule ends the connection, with
//! a counter and a line that says which rule. No message that breaks one is delivered; those before it
//! in the same frame are.

use super::{BindKey, Connection, Counter};
use crate::kapi::{
    net::{IpBits, Sock},
    print::pr_warn_ratelimited,
    rdma::DeviceId,
    sync::{Item, Peek},
};
use crate::msg::{Incoming, Message, MsgMeta, Payload, PongSlot, Socket};
use crate::proto::{
    packed::{SplitError, Unpacker},
    rdma::RdmaExthdrs,
    rx::{Position, RecvState, RxError, Step},
    tx::AckError,
    wire::{Header, HeaderError, PING_PORT, PROBE_PORT},
};
use crate::recv_pool::BufMut;
use kernel::{
    fmt,
    prelude::*,
    sync::{aref::ARef, atomic::Relaxed, Arc},
};

/// A message of which fragments have arrived.
struct Partial {
    header: Header,
    bufs: KVec<BufMut>,
    /// Payload of every fragment but the last, in bytes.
    size: u32,
    /// Memory ran out: the rest is received, and nothing is delivered.
    failed: bool,
    meta: Option<KBox<MsgMeta>>,
}

/// The receive side of a connection.
pub(super) struct RecvSide {
    state: RecvState,
    partial: Option<Partial>,
}

impl RecvSide {
    pub(super) const fn new() -> Self {
        Self {
            state: RecvState::new(),
            partial: None,
        }
    }

    /// Goes on where an earlier connection to the peer was. Nothing has arrived yet.
    pub(super) fn resume(&mut self, position: Position) {
        self.state = RecvState::at(position);
    }

    pub(super) fn position(&self) -> Position {
        self.state.position()
    }

    /// Whether the peer runs this implementation.
    pub(super) fn peer_is_like_us(&self) -> bool {
        self.state.tells_generation()
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.state.next_sequence()
    }

    /// Whether no message has ever arrived.
    pub(super) fn is_unused(&self) -> bool {
        self.state.is_unused()
    }

    /// Whether a message has arrived in part.
    pub(super) fn has_partial(&self) -> bool {
        self.partial.is_some()
    }
}

/// The rule that a peer broke. The connection has to go.
#[derive(Debug)]
pub(crate) enum Violation {
    /// Shorter than a header, in bytes.
    Short(usize),
    Header(HeaderError),
    /// Several messages in it, but not to its end.
    Packed(SplitError),
    Fragment(RxError),
    Ack(AckError),
    /// Nothing is wrong with the peer, but a message could not be kept: it has to send it again.
    NoMemory,
    /// Something came after a violation.
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

/// A message or a fragment of one.
enum Piece<'a> {
    /// In a buffer, behind a header: both together have so many bytes.
    Frame(BufMut, usize),
    /// A whole message in a frame that has others too. Its payload.
    Shared(&'a [u8]),
}

impl Piece<'_> {
    fn payload(&self) -> &[u8] {
        match self {
            Self::Frame(buf, len) => buf.bytes().get(Header::LEN..*len).unwrap_or(&[]),
            Self::Shared(payload) => payload,
        }
    }

    /// Whether its message is better copied than given the buffer.
    fn is_to_be_copied(&self) -> bool {
        match self {
            // A buffer on loan is charged whole: not for less than a quarter of it.
            Self::Frame(buf, _) => self.payload().len() < buf.capacity() / 4,
            Self::Shared(_) => true,
        }
    }

    /// The buffer, if there is one.
    fn into_buf(self) -> Option<BufMut> {
        match self {
            Self::Frame(buf, _) => Some(buf),
            Self::Shared(_) => None,
        }
    }
}

/// What a frame completes.
enum Complete {
    Nothing,
    Message(Item<Incoming>),
    /// A message that was delivered before.
    Duplicate,
    Ping,
}

impl Connection {
    /// Takes a frame of `len` bytes that came in through `device`. Softirq context; frames of one connection come one by
    /// one.
    ///
    /// Returns the buffer if it can be posted again, and how many messages were in it; fails if the
    /// connection has to go.
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
            let buf = self.take(&header, Piece::Frame(buf, len), device)?;
            return Ok((buf, 1));
        }
        self.node.stats.inc(Counter::IbRxPacked);
        let mut count = 0u32;
        for message in Unpacker::new(frame) {
            let (header, payload) = message.map_err(Violation::Packed)?;
            self.take(&header, Piece::Shared(payload), device)?;
            count = count.wrapping_add(1);
        }
        Ok((Some(buf), count))
    }

    /// Takes a message or a fragment of one. Returns its buffer if it has one that can be posted again.
    fn take(
        self: &Arc<Self>,
        header: &Header,
        piece: Piece<'_>,
        device: DeviceId,
    ) -> Result<Option<BufMut>, Violation> {
        // First, because a wrong one must not cost the message that it comes with.
        self.note_ack(header)?;
        let mut guard = self.rx.lock();
        let rx = &mut *guard;
        // If there is no memory for the message it has not arrived: the peer sends it again.
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
                    // Its frame has made the receive ring smaller by one: that was all.
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
        // Only what is in its socket's queue is acknowledged, or lost for good.
        self.ack.store(ack, Relaxed);
        Ok(recycle)
    }

    /// Loses a message for a port that takes no more, which its reader is told. The connection is
    /// for others, too.
    #[cold]
    fn refuse_to_deliver(&self, sk: &Sock<Socket>, why: Counter) {
        self.note_drop(why, 1);
        sk.note_lost();
    }

    /// Takes the acknowledgement that every header carries; 0 is none. What is no news needs no lock.
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
        piece: Piece<'_>,
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
            // A frame is short, and not empty, or the message would end with it. The compiler does
            // not know either, and would divide by zero in a panic of its own.
            let size = u32::try_from(piece.payload().len())
                .unwrap_or(u32::MAX)
                .max(1);
            let count = header.len.div_ceil(size);
            let bufs =
                KVec::with_capacity(count as usize, GFP_ATOMIC).map_err(|_| Violation::NoMemory)?;
            rx.partial = Some(Partial {
                header: *header,
                bufs,
                size,
                failed: false,
                meta: self.node.begin_stamps(),
            });
        }
        // The protocol core has seen the first fragment, or this one would have been an error.
        // What shares a frame is whole.
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
            Some(Partial {
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
        // A heartbeat, and an answer to no one.
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

    /// What a pong to a port takes, unless the port is full, or so much waits that the peer gets no more.
    fn room_for_pong(&self, port: u16) -> Option<PongSlot> {
        const MOST: usize = 4096;
        /// With less than this on a connection the pongs of others are not in the way.
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

    /// The socket that a message is for.
    fn target(&self, header: &Header) -> Option<ARef<Sock<Socket>>> {
        let key = BindKey {
            addr: IpBits::new(self.key.laddr),
            port: header.dport,
            scope: self.key.local_scope(),
        };
        self.node.binds.lookup(self.key.net, &key)
    }

    /// Whether a message has arrived in part.
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

    /// The endpoint is gone. What was incomplete comes again, from its start. Process context.
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
        // A map may have come after the connection went down, or before it was up.
        self.forget_map();
    }

    /// The next connection begins with the peer's map; until then nobody is held back. Any context.
    pub(super) fn forget_map(&self) {
        self.remote.clear();
        self.waiters.wake_all();
    }
}

/// Whether this is an answer to [`Connection::probe`].
fn is_probe_answer(header: &Header) -> bool {
    header.dport == PROBE_PORT && header.sport == PING_PORT
}
