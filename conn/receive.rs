// SPDX-License-Identifier: GPL-2.0

//! Receive path of a connection, from frames to messages in the queues of sockets.
//!
//! A frame stays in the memory of its transport. That memory goes to the reader with the message,
//! or back to the transport if the payload was copied. A message is acknowledged once it is in the
//! queue of its socket, or was dropped for good.
//!
//! The peer controls all content of a frame. A frame that violates a rule ends the connection, and
//! is counted and logged with the rule. A message that violates a rule is never delivered; those
//! before it in the same frame are.
//!
//! A frame for whose message there is no memory stays with the caller, which passes it again. The
//! device's worker allocates the memory meanwhile.

use super::{
    recv_frame::{
        FrameOrigin,
        ReceivedPiece,
        RecvFrame, //
    },
    recv_reserve::RecvReserve,
    recv_side::{
        Reassembly,
        RecvSide, //
    },
    violation::Violation,
    Connection, //
};
use crate::{
    kapi::{
        net::{
            IpBits,
            Sock, //
        },
        print::pr_warn_ratelimited,
        sync::{
            Item,
            ReadOnce, //
        }, //
    },
    proto::{
        packed::Unpacker,
        rdma::RdmaExthdrs,
        rx::Step,
        wire::{
            Header,
            HeaderError,
            PING_PORT,
            PROBE_PORT, //
        }, //
    },
    socket::{
        BindKey,
        Incoming,
        MsgMeta,
        Payload,
        Socket, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Reason why a frame was not received.
pub(crate) enum ReceiveError {
    /// There is no memory for a message. The memory of the frame was not taken.
    NoMemory,
    /// The caller must end the connection.
    Violation(Violation),
}

impl From<Violation> for ReceiveError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
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
    /// Receives a frame, and takes its memory if a message needs it.
    ///
    /// `taken` is the number of messages in the frame that earlier attempts have received. Those of
    /// this attempt are added.
    ///
    /// # Errors
    ///
    /// - [`ReceiveError`]
    ///
    /// # Context
    ///
    /// Softirq; over TCP also process context. Frames of one connection arrive one by one.
    pub(crate) fn receive(
        self: &Arc<Self>,
        frame: RecvFrame<'_>,
        taken: &mut u32,
    ) -> Result<(), ReceiveError> {
        self.try_receive(frame, taken)
            .inspect_err(|error| match error {
                ReceiveError::NoMemory => self.count_rdma(Counter::IbRxAllocWait),
                ReceiveError::Violation(violation) => self.note_violation(violation),
            })
    }

    #[cold]
    fn note_violation(&self, violation: &Violation) {
        self.note_drop(violation.counter(), 1);
        if !matches!(violation, Violation::Broken) {
            self.path.rx_failed.store(true, Relaxed);
            self.path.note_drop_reason(violation.drop_reason());
            pr_warn_ratelimited!(
                self.log_limit,
                "{}: dropping the connection: {}\n",
                self.key,
                violation
            );
        }
    }

    /// Counts and logs a header of the peer that breaks a rule. The caller ends the connection.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cold]
    pub(crate) fn note_bad_header(&self, error: HeaderError) {
        self.note_violation(&Violation::Header(error));
    }

    fn try_receive(
        self: &Arc<Self>,
        frame: RecvFrame<'_>,
        taken: &mut u32,
    ) -> Result<(), ReceiveError> {
        if self.path.rx_failed.read_once() {
            return Err(Violation::Broken.into());
        }
        let origin = frame.origin();
        if let RecvFrame::Packet { header, .. } = &frame {
            let header = Header::parse(header).map_err(Violation::Header)?;
            self.take(&header, ReceivedPiece::Frame(frame), origin)?;
            *taken = 1;
            self.note_credits(header.credit);
            return Ok(());
        }
        let bytes = frame.bytes().ok_or(Violation::Short(0))?;
        let (header, payload) = bytes
            .split_first_chunk::<{ Header::LEN }>()
            .ok_or(Violation::Short(bytes.len()))?;
        let header = Header::parse(header).map_err(Violation::Header)?;
        if payload.len() <= header.len as usize {
            let piece = match frame {
                RecvFrame::Shared(_) => ReceivedPiece::Shared(payload),
                frame => ReceivedPiece::Frame(frame),
            };
            self.take(&header, piece, origin)?;
            *taken = 1;
        } else {
            for message in Unpacker::new(bytes).skip(*taken as usize) {
                let (header, payload) = message.map_err(Violation::Packed)?;
                self.take(&header, ReceivedPiece::Shared(payload), origin)?;
                *taken = taken.wrapping_add(1);
            }
            self.node.stats.inc(Counter::IbRxPacked);
        }
        // Last, so that it is done once for each frame.
        self.note_credits(header.credit);
        Ok(())
    }

    /// Receives a message or a fragment of one.
    fn take(
        self: &Arc<Self>,
        header: &Header,
        piece: ReceivedPiece<'_>,
        origin: FrameOrigin,
    ) -> Result<(), ReceiveError> {
        // First, because a wrong acknowledgement must not cost the message that carries it.
        self.note_ack(header)?;
        let mut guard = self.path.rx.lock();
        let rx = &mut *guard;
        // If there is no memory for the message, it counts as not arrived, and comes again.
        let before = rx.state.clone();
        let step = rx
            .handle(header, piece.len(), origin)
            .map_err(Violation::Fragment)?;
        let complete = match step {
            Step::PureAck => {
                self.count_rdma(Counter::IbAckReceived);
                Complete::Nothing
            }
            Step::Congestion { offset, last } => {
                // A stream has no packed frames.
                let takes_packed = rx.state.takes_packed() && !self.is_stream();
                self.path.peer_accepts_packed.store(takes_packed, Relaxed);
                // A map on another path may be older than the last one on the first. Only C RDS
                // sends new ones there.
                let counts = self.first.is_none() || !rx.peer_is_rds_rust();
                drop(guard);
                if counts {
                    // A transport copies maps.
                    self.update_remote(offset, piece.payload().unwrap_or(&[]), last);
                }
                return Ok(());
            }
            Step::Data {
                last, duplicate, ..
            } if duplicate || header.dport == PING_PORT || is_probe_answer(header) => {
                match (last, duplicate) {
                    (false, _) => Complete::Nothing,
                    (true, true) => Complete::Duplicate,
                    (true, false) if header.dport == PING_PORT => Complete::Ping,
                    // An answer to a probe. Its frame has used a posted receive, and that was its
                    // only purpose.
                    (true, false) => Complete::Nothing,
                }
            }
            Step::Data { first, last, .. } => match self.assemble(rx, header, piece, first, last) {
                Some(done) => done,
                None => {
                    rx.state = before;
                    return Err(ReceiveError::NoMemory);
                }
            },
        };
        let target = match &complete {
            Complete::Message(_) => {
                rx.bytes = rx.bytes.wrapping_add(u64::from(header.len));
                self.target(header)
            }
            _ => None,
        };
        if rx.state.take_ack_required() {
            self.node.stats.inc(Counter::RecvAckRequired);
            self.path.ack_wanted.store(true, Relaxed);
        }
        let ack = rx.state.ack();
        let has_changed = rx.negotiation.take_change();
        drop(guard);
        if has_changed {
            self.check_paths();
        }
        if matches!(complete, Complete::Message(_) | Complete::Ping) {
            let ports = (header.sport, header.dport);
            trace::msg_received(|| self.key.traced_msg(ports, header.len, header.sequence));
        }

        match complete {
            Complete::Nothing => {}
            Complete::Duplicate => self.note_drop(Counter::RecvDropOldSeq, 1),
            Complete::Ping => self.answer(header),
            Complete::Message(mut incoming) => match target {
                Some(sk) if self.is_pong_to_full_port(header, &sk) => {
                    // Nobody was promised a pong, so the reader is not told of a loss.
                    self.note_drop(Counter::RecvDropPong, 1);
                }
                Some(sk) => {
                    if let Some(rkey) = incoming.meta.as_ref().and_then(|it| it.extras.used) {
                        origin.use_region(&sk, rkey);
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
        self.path.ack.store(ack, Relaxed);
        Ok(())
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
        if header.ack <= self.path.acked.read_once() {
            return Ok(());
        }
        self.handle_ack(header.ack).map_err(Violation::Ack)
    }

    /// Adds a fragment to its message. Called with the receive side locked. Returns `None`, and
    /// takes nothing, if there is no memory.
    fn assemble(
        &self,
        rx: &mut RecvSide,
        header: &Header,
        piece: ReceivedPiece<'_>,
        first: bool,
        last: bool,
    ) -> Option<Complete> {
        if first && last {
            let stamps = self.node.begin_stamps();
            let mut incoming = self.incoming(&mut rx.reserve, header, stamps)?;
            let copied = piece.payload().is_some_and(|bytes| {
                incoming.inline.set(bytes) || piece.is_to_be_copied() && incoming.set_copy(bytes)
            });
            if !copied {
                match piece {
                    ReceivedPiece::Frame(..) => {
                        incoming.payload = Payload::One(piece.into_buf()?);
                    }
                    ReceivedPiece::Shared(bytes) => {
                        let copy = rx.reserve.take_copy(bytes.len())?;
                        if !incoming.set_copy_in(copy, bytes) {
                            return None;
                        }
                    }
                }
            }
            return Some(Complete::Message(incoming));
        }
        if first {
            let (size, count) = piece.division(header.len)?;
            let bufs = KVec::with_capacity(count, GFP_ATOMIC)
                .ok()
                .or_else(|| rx.reserve.take_list(count))?;
            rx.partial = Some(Reassembly {
                header: *header,
                bufs,
                size,
                meta: self.node.begin_stamps(),
            });
        }
        // `proto::rx` has seen the first fragment, otherwise it would have returned an error.
        let partial = rx.partial.as_mut()?;
        if !last {
            // Its list has room for all fragments. Messages in packed frames are whole.
            let added = partial.bufs.push_within_capacity(piece.into_buf()?);
            return added.is_ok().then_some(Complete::Nothing);
        }
        let mut incoming = self.incoming(&mut rx.reserve, &partial.header, None)?;
        let mut partial = rx.partial.take()?;
        incoming.set_stamps(partial.meta.take());
        let added = partial.bufs.push_within_capacity(piece.into_buf()?);
        incoming.payload = Payload::Many(partial.bufs, partial.size);
        added.is_ok().then_some(Complete::Message(incoming))
    }

    /// Creates a message without payload. Returns `None` if there is no memory, not even in the
    /// reserve.
    fn incoming(
        &self,
        reserve: &mut RecvReserve,
        header: &Header,
        meta: Option<KBox<MsgMeta>>,
    ) -> Option<Item<Incoming>> {
        let extras = RdmaExthdrs::read(&header.exthdr);
        let made = Incoming::new(
            self.key.faddr,
            header.sport,
            header.len,
            self.key.scope,
            meta,
            GFP_ATOMIC,
        );
        let complete = |mut incoming: Item<Incoming>| {
            incoming.tos = self.key.tos;
            incoming.sequence = header.sequence;
            match extras {
                Some(extras) => incoming.set_extras(extras, GFP_ATOMIC).map(|()| incoming),
                None => Ok(incoming),
            }
        };
        let found = made.and_then(complete).or_else(|error| {
            let mut spare = reserve.take_incoming().ok_or(error)?;
            spare.saddr = self.key.faddr;
            spare.sport = header.sport;
            spare.len = header.len;
            spare.scope = self.key.scope;
            complete(spare)
        });
        found.ok()
    }

    /// Allocates memory for a message for which the softirq found none.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn fill_recv_reserve(&self) {
        let missing = self.path.rx.lock().reserve.missing();
        let reserve = RecvReserve::allocate(missing);
        let old = core::mem::replace(&mut self.path.rx.lock().reserve, reserve);
        drop(old);
    }

    /// Returns the socket to which a message is addressed.
    fn target(&self, header: &Header) -> Option<ARef<Sock<Socket>>> {
        let key = BindKey {
            addr: IpBits::new(self.key.laddr),
            port: header.dport,
            scope: self.key.local_scope(),
        };
        self.node.shared.binds.lookup(self.key.net, &key)
    }

    fn update_remote(self: &Arc<Self>, offset: u32, piece: &[u8], last: bool) {
        let first = self.first.as_ref().unwrap_or(self);
        if let Some(set) = &first.paths {
            set.note_map(self.key.path);
        }
        match first.remote.update(offset, piece) {
            Ok(0) => {}
            Ok(freed) => {
                if first.waiters.wake_some(freed) {
                    first.sweep_at_once();
                }
            }
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
        let ack_known_to_peer = self.path.tx.lock().queue.state.take_ack_known_to_peer();
        let mut rx = self.path.rx.lock();
        // C RDS over TCP does not read acknowledgements, so it retransmits messages that have one.
        if !self.is_stream() {
            rx.state.note_ack_known_to_peer(ack_known_to_peer);
        }
        rx.state.link_lost();
        rx.negotiation.down();
        let partial = rx.partial.take();
        let reserve = core::mem::replace(&mut rx.reserve, RecvReserve::new());
        drop(rx);
        drop((partial, reserve));
        self.path.rx_failed.store(false, Relaxed);
        self.path.peer_accepts_packed.store(false, Relaxed);
        self.path.ack.store(0, Relaxed);
        // A map may have arrived after the connection went down, or before it was up.
        self.forget_map();
    }

    /// Drops the peer's congestion map, and wakes all waiters. The next connection begins with a
    /// new map, and until then no port counts as congested. Only the first path has a map.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn forget_map(&self) {
        if self.first.is_some() {
            return;
        }
        if let Some(set) = &self.paths {
            set.forget_maps();
        }
        self.remote.clear();
        self.waiters.wake_all();
    }
}

/// Returns `true` for an answer to [`Connection::probe`].
fn is_probe_answer(header: &Header) -> bool {
    header.dport == PROBE_PORT && header.sport == PING_PORT
}
