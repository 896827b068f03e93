// SPDX-License-Identifier: GPL-2.0

//! Messages for other nodes.
//!
//! A message is filled by the system call, and holds its fragments until the peer has acknowledged
//! it. A fragment's buffer is shared with each queue pair to which it was posted. While an earlier
//! queue pair still has the buffer, the fragment cannot be posted again. Dropping the message
//! releases its charge, see [`SndbufCharge`].

use super::{
    fragments::{
        Fragments,
        Frame,
        FrameError,
        Piece, //
    },
    FollowUp,
    MessagePlace,
    PongSlot,
    RdmaOp, //
};
use crate::{
    kapi::{
        alloc::kmalloc_size,
        net::{
            SendMsg,
            Sock, //
        },
        sync::Item, //
    },
    proto::{
        exthdr,
        packed::{
            self,
            Packer, //
        },
        rdma::{
            Cookie,
            RdmaExthdrs, //
        },
        tx::Pressure,
        wire::{
            self,
            FragmentSize,
            Header,
            PING_PORT,
            PROBE_PORT, //
        }, //
    },
    recv_pool::{
        Buf,
        Context,
        Pools, //
    },
    socket::{
        SndbufCharge,
        Socket, //
    }, //
};
use kernel::prelude::*;

/// Memory that a message announces to its receiver, and the operation that it carries.
#[derive(Default)]
pub(crate) struct MsgOps {
    /// Registered memory of the sender that the message announces.
    pub(crate) memory: Option<Cookie>,
    pub(crate) operation: Option<KBox<RdmaOp>>,
}

/// Buffers for the payload of a message, allocated before the message.
pub(crate) struct MsgBuffers {
    /// Size of `fragments`.
    cut: FragmentSize,
    fragments: Fragments,
}

impl MsgBuffers {
    /// Allocates buffers for `len` bytes, in fragments of `cut` or less.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` if the pool is at its limit.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn alloc(pools: &Pools, cut: FragmentSize, len: u32) -> Result<Self> {
        let (cut, fragments) = Fragments::alloc(pools, cut, len)?;
        Ok(Self { cut, fragments })
    }
}

/// Resources that are released when a message is finished.
enum Charge {
    /// Charge to the sender's socket.
    Socket(SndbufCharge),
    /// No socket is charged. An answer to a ping has a slot of the node's budget.
    Node { _pong: Option<PongSlot> },
}

impl Charge {
    fn of_socket(&self) -> Option<&SndbufCharge> {
        match self {
            Self::Socket(charge) => Some(charge),
            Self::Node { .. } => None,
        }
    }
}

/// A message for a peer, from the system call until the peer has acknowledged it.
pub(crate) struct Message {
    /// Sequence number, assigned when the message is queued.
    pub(crate) sequence: u64,
    /// Payload bytes.
    pub(crate) len: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    /// Index of the next fragment to post. 0 as long as none was posted.
    pub(crate) fragment: u32,
    /// The sender has cancelled the message when it was partially sent. It is completed, and not
    /// sent again.
    pub(crate) cancelled: bool,
    /// The message is a keepalive: it is not sent again, and requests an acknowledgement.
    pub(crate) is_keepalive: bool,
    /// Flags of the header, the same in all fragments.
    pub(crate) flags: wire::Flags,
    fragments: Fragments,
    pub(crate) ops: MsgOps,
    /// Size of `fragments`.
    cut: FragmentSize,
    charge: Charge,
    /// Place in the table of paths, if the connection may have several.
    pub(crate) place: Option<MessagePlace>,
}

// Each message takes this much, with the list that it is in.
const _: () = assert!(Item::<Message>::SIZE == 128);

impl Message {
    /// Creates a message with the payload of a system call, in `buffers` for `len` bytes.
    ///
    /// # Errors
    ///
    /// - `EFAULT`
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn from_user(
        buffers: MsgBuffers,
        (sport, dport): (u16, u16),
        msg: &mut SendMsg<'_>,
        len: u32,
        ops: MsgOps,
        charge: Option<SndbufCharge>,
    ) -> Result<Item<Self>> {
        let MsgBuffers { cut, mut fragments } = buffers;
        fragments.fill(len, cut, msg)?;
        let charge = charge.map_or(Charge::Node { _pong: None }, Charge::Socket);
        let mut message = Self::new(sport, dport, len, fragments, charge);
        message.cut = cut;
        message.ops = ops;
        Ok(Item::new(message, GFP_KERNEL)?)
    }

    /// Returns the memory of a message of `len` bytes in fragments of `cut`, in bytes.
    pub(crate) fn cost(len: u32, cut: FragmentSize) -> usize {
        let mut rest = len;
        let (mut whole, mut list) = (0, 0);
        if len > cut.bytes() {
            // At most 255 fragments, each of less than 22 KiB.
            let count = (len - 1) / cut.bytes();
            rest = len.saturating_sub(count.saturating_mul(cut.bytes()));
            whole = count.saturating_mul(Pools::send_size(cut.bytes()));
            let pieces = (count as usize).saturating_add(1);
            list = kmalloc_size(pieces.saturating_mul(size_of::<Piece>()));
        }
        let buffers = whole.saturating_add(Pools::send_size(rest));
        Item::<Self>::SIZE
            .saturating_add(list)
            .saturating_add(buffers as usize)
    }

    /// Creates an empty message that is not charged to a socket.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn empty(pools: &Pools, sport: u16, dport: u16) -> Result<Item<Self>> {
        Self::short(pools, sport, dport, Charge::Node { _pong: None })
    }

    /// Creates the answer to a ping from `dport`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn pong(pools: &Pools, dport: u16, pong: PongSlot) -> Result<Item<Self>> {
        Self::short(pools, PING_PORT, dport, Charge::Node { _pong: Some(pong) })
    }

    /// Creates a message of `len` bytes in fragments of `cut`, for tests.
    ///
    /// # Context
    ///
    /// May sleep.
    #[cfg(rds_kunit)]
    pub(crate) fn of_len(
        pools: &Pools,
        cut: FragmentSize,
        port: u16,
        len: u32,
    ) -> Result<Item<Self>> {
        let (cut, fragments) = Fragments::alloc(pools, cut, len)?;
        let mut message = Self::new(port, port, len, fragments, Charge::Node { _pong: None });
        message.cut = cut;
        Ok(Item::new(message, GFP_KERNEL)?)
    }

    fn short(pools: &Pools, sport: u16, dport: u16, charge: Charge) -> Result<Item<Self>> {
        let buf = pools.alloc_message(0, Context::Atomic)?;
        let message = Self::new(sport, dport, 0, Fragments::One(Piece::Ready(buf)), charge);
        Ok(Item::new(message, GFP_ATOMIC)?)
    }

    /// Creates a keepalive. Both its ports are 0, so the peer acknowledges it and delivers it to no
    /// socket. One byte of payload distinguishes it from an acknowledgement.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn keepalive(pools: &Pools) -> Result<Item<Self>> {
        let mut buf = pools.alloc_message(1, Context::Atomic)?;
        *buf.bytes_mut().get_mut(Header::LEN).ok_or(EINVAL)? = 0;
        let fragments = Fragments::One(Piece::Ready(buf));
        let mut message = Self::new(
            PING_PORT,
            PING_PORT,
            1,
            fragments,
            Charge::Node { _pong: None },
        );
        message.is_keepalive = true;
        Ok(Item::new(message, GFP_ATOMIC)?)
    }

    fn new(sport: u16, dport: u16, len: u32, fragments: Fragments, charge: Charge) -> Self {
        Self {
            sequence: 0,
            len,
            sport,
            dport,
            fragment: 0,
            cancelled: false,
            is_keepalive: false,
            flags: wire::Flags::NONE,
            ops: MsgOps::default(),
            fragments,
            cut: FragmentSize::default(),
            charge,
            place: None,
        }
    }

    /// Returns the number of the message's buffers. Areas of local memory that its operation keeps
    /// until the acknowledgement count like buffers.
    #[inline]
    pub(crate) fn buffers(&self) -> usize {
        let buffers = match &self.fragments {
            Fragments::One(_) => 1,
            Fragments::Many(pieces) => pieces.len(),
        };
        match &self.ops.operation {
            None => buffers,
            Some(operation) => buffers.saturating_add(operation.kept_areas()),
        }
    }

    fn piece(&mut self, index: u32) -> Option<&mut Piece> {
        match &mut self.fragments {
            Fragments::One(piece) if index == 0 => Some(piece),
            Fragments::One(_) => None,
            Fragments::Many(pieces) => pieces.get_mut(index as usize),
        }
    }

    /// Returns a buffer with the payload of the next fragment, which is `part` of the message in
    /// fragments of `size`. It can be posted to queue pairs of the device that has `pools`.
    ///
    /// # Errors
    ///
    /// - [`FrameError`], without any change.
    pub(crate) fn next_frame(
        &mut self,
        part: wire::Fragment,
        size: FragmentSize,
        pools: &Pools,
    ) -> Result<Frame, FrameError> {
        let same = size == self.cut || self.len <= size.min(self.cut).bytes();
        if same {
            let piece = self.piece(self.fragment).ok_or(FrameError::InUse)?;
            return piece.take(part.len, pools);
        }
        let mut copy = pools.alloc_frame(part.len).ok_or(FrameError::NoBuffer)?;
        let end = Header::LEN.saturating_add(part.len as usize);
        copy.buf
            .bytes_mut()
            .get_mut(Header::LEN..end)
            .and_then(|payload| self.copy_out(part.offset, payload))
            .ok_or(FrameError::InUse)?;
        Ok(Frame::of_copy(copy))
    }

    /// Returns the fragment size of the message's own buffers.
    #[inline]
    pub(crate) fn cut(&self) -> FragmentSize {
        self.cut
    }

    /// Completes the frame of [`Self::next_frame`] with its header. Returns the buffer to post. The
    /// fragment after it is the next one. `None` if the buffer has no room for a header, which no
    /// pool provides.
    pub(crate) fn finish_frame(&mut self, frame: Frame, header: &Header) -> Option<Buf> {
        let mut buf = frame.buf;
        header.emit(buf.bytes_mut().first_chunk_mut()?);
        let buf = buf.freeze();
        if !frame.copied {
            *self.piece(self.fragment)? = Piece::Posted(buf.clone());
        }
        self.fragment = self.fragment.saturating_add(1);
        Some(buf)
    }

    /// Returns `true` if the message may share a frame with others: it is short, and no part of it
    /// was sent. Messages for or from the probe port need a frame of their own.
    pub(crate) fn is_packable(&self) -> bool {
        self.fragment == 0
            && self.len <= packed::LONGEST
            && self.ops.operation.is_none()
            && self.sport != PROBE_PORT
            && self.dport != PROBE_PORT
    }

    /// Adds the whole message to a frame that has room for it. `None` if an earlier queue pair
    /// still has its buffer.
    pub(crate) fn pack(&mut self, header: &Header, packer: &mut Packer<'_>) -> Option<()> {
        let end = Header::LEN.saturating_add(self.len as usize);
        let payload = self.piece(0)?.read()?.get(Header::LEN..end)?;
        packer.push(header, payload).then_some(())
    }

    /// Copies payload from byte `offset` on. `None` if a queue pair still has one of the buffers.
    fn copy_out(&mut self, offset: u32, mut out: &mut [u8]) -> Option<()> {
        let cut = self.cut.bytes();
        let mut at = offset;
        while !out.is_empty() {
            let within = at % cut;
            let count = out.len().min(cut.saturating_sub(within) as usize);
            let start = Header::LEN.saturating_add(within as usize);
            let bytes = self.piece(at / cut)?.read()?;
            let from = bytes.get(start..start.saturating_add(count))?;
            let (now, rest) = out.split_at_mut_checked(count)?;
            now.copy_from_slice(from);
            out = rest;
            // CAST: at most a fragment.
            at = at.saturating_add(count as u32);
        }
        Some(())
    }

    /// Returns the extension headers.
    #[inline]
    pub(crate) fn extensions(&self) -> [u8; exthdr::SPACE] {
        let (memory, operation) = (self.ops.memory, self.operation());
        if memory.is_none() && operation.is_none() {
            return [0; exthdr::SPACE];
        }
        let used = operation.and_then(|it| it.rkey);
        RdmaExthdrs { memory, used }.emit()
    }

    /// Returns `true` if the peer acknowledges the message and delivers it to no socket.
    #[inline]
    pub(crate) fn is_ack_request(&self) -> bool {
        self.operation()
            .is_some_and(|it| it.behind == FollowUp::AckRequest)
    }

    /// Returns `true` if the message exists only for its operation, and is not sent.
    pub(crate) fn is_operation_only(&self) -> bool {
        self.operation()
            .is_some_and(|it| it.behind == FollowUp::Nothing)
    }

    /// Returns the ports that the header has. A request for an acknowledgement alone has port 0 on
    /// both sides.
    #[inline]
    pub(crate) fn ports(&self) -> (u16, u16) {
        if self.is_ack_request() {
            (PING_PORT, PING_PORT)
        } else {
            (self.sport, self.dport)
        }
    }

    #[inline]
    fn operation(&self) -> Option<&RdmaOp> {
        self.ops.operation.as_deref()
    }

    /// Returns `true` if the message was for one queue pair only, so it is not sent again.
    pub(crate) fn is_for_one_link(&self) -> bool {
        self.cancelled || self.is_keepalive
    }

    /// Returns `true` if the peer waits for the rest of the message.
    pub(crate) fn is_partially_sent(&self) -> bool {
        self.fragment > 0 || self.operation().is_some_and(RdmaOp::is_partially_sent)
    }

    /// Returns `true` if the message has an operation with work requests that wait to be posted.
    #[inline]
    pub(crate) fn has_to_operate(&self) -> bool {
        self.operation().is_some_and(RdmaOp::is_waiting)
    }

    /// Returns `true` if the next work request of the operation is a read.
    pub(crate) fn reads_next(&self) -> bool {
        self.operation().is_some_and(RdmaOp::reads_next)
    }

    /// Returns `true` if the message is sent only when its operation is done.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.operation().is_some_and(|it| it.fence)
    }

    /// Returns `true` if the message requests an immediate acknowledgement: it is a keepalive, or
    /// only the acknowledgement tells that its operation is done.
    #[inline]
    pub(crate) fn wants_ack(&self) -> bool {
        self.is_keepalive || self.operation().is_some_and(RdmaOp::is_awaiting_ack)
    }

    /// Returns `true` if the message has an operation that was started on a queue pair that is
    /// gone, and is not known to have succeeded.
    pub(crate) fn has_lost_operation(&self) -> bool {
        self.operation().is_some_and(RdmaOp::is_lost)
    }

    /// Notes that the message is in the queue of a connection.
    pub(crate) fn queue(&mut self, sequence: u64) {
        self.sequence = sequence;
        if let Some(operation) = self.operation() {
            operation.queue();
        }
    }

    /// Notes that the peer has received the message.
    pub(crate) fn acknowledge(&self) {
        if let Some(operation) = self.operation() {
            operation.acknowledge();
        }
    }

    /// Notes that the program has cancelled the message.
    pub(crate) fn cancel(&self) {
        if let Some(operation) = self.operation() {
            operation.cancel();
        }
    }

    /// Returns `true` if the socket `sk` sent the message.
    pub(crate) fn is_from(&self, sk: &Sock<Socket>) -> bool {
        match (self.charge.of_socket(), self.operation()) {
            (Some(charge), _) => core::ptr::eq(charge.socket(), sk),
            (None, Some(operation)) => operation.is_from(sk),
            (None, None) => false,
        }
    }

    /// Returns `true` if the socket that sent the message is closed.
    pub(crate) fn is_from_closed(&self) -> bool {
        match (self.charge.of_socket(), self.operation()) {
            (Some(charge), _) => charge.socket().is_closed(),
            (None, Some(operation)) => operation.is_from_closed(),
            (None, None) => false,
        }
    }

    /// Charges the message to a socket, as if that had sent it.
    #[cfg(rds_kunit)]
    pub(crate) fn charge_to(&mut self, charge: SndbufCharge) {
        self.charge = Charge::Socket(charge);
    }

    /// Returns the bytes that are charged to the sender.
    pub(crate) fn charge(&self) -> usize {
        self.charge.of_socket().map_or(0, SndbufCharge::bytes)
    }

    /// Returns the use of the sender's send buffer.
    pub(crate) fn pressure(&self) -> Pressure {
        match self.charge.of_socket() {
            Some(charge) => charge.socket().pressure(),
            None => Pressure::Low,
        }
    }

    /// Separates the message from its sender, which is no longer charged. The caller drops the
    /// result without a lock.
    pub(crate) fn take_charge(&mut self) -> Option<SndbufCharge> {
        match core::mem::replace(&mut self.charge, Charge::Node { _pong: None }) {
            Charge::Socket(charge) => Some(charge),
            node => {
                self.charge = node;
                None
            }
        }
    }
}
