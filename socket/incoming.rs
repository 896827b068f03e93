// SPDX-License-Identifier: GPL-2.0

//! Messages that have arrived and wait to be read.
//!
//! A message holds its payload inline, in a copy, or in the receive buffers in which it arrived.
//! Dropping the message returns those buffers to their pool. If there is no memory for a copy, the
//! message keeps its buffers or is dropped.

use super::{
    recv_buf::PayloadRef,
    MsgMeta,
    RecvBuf,
    SndbufCharge,
    Stamps, //
};
use crate::{
    kapi::{
        alloc::kmalloc_size,
        net::RecvMsg,
        sync::Item,
        InlineBytes, //
    },
    proto::{
        rcvbuf::Unread,
        rdma::RdmaExthdrs, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    alloc::AllocError,
    prelude::*, //
};

/// Maximum payload that is stored in the message itself. A payload from another node is copied
/// there, so that its buffer can be posted again at once.
pub(crate) const INLINE: usize = 152;

/// Payload bytes in each of [`Payload::Chunks`], except the last one.
pub(crate) const CHUNK: usize = 64 << 10;

/// Memory of a message without its payload, in bytes.
const OVERHEAD: usize = Item::<Incoming>::SIZE;

/// Returns the memory that a copy of `len` bytes of payload takes, in bytes.
fn size_of_copy(len: usize) -> usize {
    if len <= CHUNK {
        return kmalloc_size(len);
    }
    let rest = len % CHUNK;
    let list = len.div_ceil(CHUNK).saturating_mul(size_of::<KVVec<u8>>());
    len.saturating_sub(rest)
        .saturating_add(kmalloc_size(rest))
        .saturating_add(kmalloc_size(list))
}

/// Storage of a message's payload.
pub(crate) enum Payload {
    /// In [`Incoming::inline`].
    Inline,
    /// In one allocation.
    Chunk(KVVec<u8>),
    /// In several allocations.
    Chunks(KVec<KVVec<u8>>),
    /// In the memory in which it arrived.
    One(RecvBuf),
    /// In the memory in which its fragments arrived. Buffers of a pool have this many bytes of
    /// payload, except the last one.
    Many(KVec<RecvBuf>, u32),
}

impl Incoming {
    /// Calls `f` with the pieces of the payload in order, until it fails.
    fn try_for_each(&self, mut f: impl FnMut(PayloadRef<'_>) -> Result) -> Result {
        let len = self.len as usize;
        match &self.payload {
            Payload::One(buf) => f(buf.payload(len)),
            Payload::Many(bufs, size) => {
                let mut left = len;
                bufs.iter().try_for_each(|buf| {
                    let piece = buf.payload(left.min(*size as usize));
                    left = left.saturating_sub(piece.len());
                    f(piece)
                })
            }
            Payload::Inline => f(PayloadRef::Bytes(self.inline.as_slice())),
            Payload::Chunk(chunk) => f(PayloadRef::Bytes(chunk)),
            Payload::Chunks(chunks) => chunks
                .iter()
                .try_for_each(|chunk| f(PayloadRef::Bytes(chunk))),
        }
    }
}

/// A message that waits to be read. It holds no reference to the connection on which it arrived.
pub(crate) struct Incoming {
    /// Address of the sender.
    pub(crate) saddr: Ipv6Addr,
    pub(crate) sport: u16,
    /// Type of service of the connection, or of the sender on the loop transport.
    pub(crate) tos: u8,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Sequence number on the connection. 0 on the loop transport.
    pub(crate) sequence: u64,
    /// Scope of link-local addresses, the sender's or the receiver's. Otherwise 0.
    pub(crate) scope: u32,
    pub(crate) meta: Option<KBox<MsgMeta>>,
    pub(crate) payload: Payload,
    pub(crate) inline: InlineBytes<INLINE>,
    /// Charge to the sender until the message is read. Only on the loop transport.
    pub(crate) charge: Option<SndbufCharge>,
}

/// Together with the link of its queue a message is one allocation of 256 bytes.
const _: () = assert!(OVERHEAD == 256);

impl Incoming {
    /// Creates a message for `len` bytes of payload, which the caller adds.
    pub(crate) fn new(
        saddr: Ipv6Addr,
        sport: u16,
        len: u32,
        scope: u32,
        meta: Option<KBox<MsgMeta>>,
        flags: kernel::alloc::Flags,
    ) -> Result<Item<Self>, AllocError> {
        Item::init(
            init!(Self {
                saddr,
                sport,
                tos: 0,
                len,
                sequence: 0,
                scope,
                meta,
                payload: Payload::Inline,
                inline <- InlineBytes::init(),
                charge: None,
            }),
            flags,
        )
    }

    /// Sets the payload to a copy of `bytes`. Returns `false` if there is no memory.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn set_copy(&mut self, bytes: &[u8]) -> bool {
        self.set_copy_in(KVVec::new(), bytes)
    }

    /// Sets the payload to a copy of `bytes` in `copy`, which grows if it has no room. Returns
    /// `false` if there is no memory.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn set_copy_in(&mut self, mut copy: KVVec<u8>, bytes: &[u8]) -> bool {
        let copied = copy.extend_from_slice(bytes, GFP_ATOMIC).is_ok();
        if copied {
            self.payload = Payload::Chunk(copy);
        }
        copied
    }

    /// Adds the RDMA extension headers of the sender.
    pub(crate) fn set_extras(
        &mut self,
        extras: RdmaExthdrs,
        flags: kernel::alloc::Flags,
    ) -> Result<(), AllocError> {
        if let Some(meta) = &mut self.meta {
            meta.extras = extras;
            return Ok(());
        }
        let meta = MsgMeta {
            extras,
            stamps: None,
        };
        self.meta = Some(KBox::new(meta, flags)?);
        Ok(())
    }

    /// Adds the timestamps in `meta`, which were taken when the message began to arrive.
    pub(crate) fn set_stamps(&mut self, meta: Option<KBox<MsgMeta>>) {
        match (&mut self.meta, meta) {
            (Some(own), Some(mut meta)) => own.stamps = meta.stamps.take(),
            (own @ None, meta) => *own = meta,
            (Some(_), None) => {}
        }
    }

    /// Returns `true` if the message has timestamps.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.meta.as_ref().is_some_and(|it| it.stamps.is_some())
    }

    /// Notes the time at which the message is queued at a socket that requests timestamps. If there
    /// is no memory, the message has none.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(super) fn note_delivery(&mut self) {
        if self.meta.is_none() {
            self.meta = MsgMeta::with_stamps();
        }
        if let Some(meta) = &mut self.meta {
            meta.stamps.get_or_insert_with(Stamps::arrive).deliver();
        }
    }

    /// Returns the memory that a message of `len` bytes takes on the loop transport, in bytes,
    /// without [`MsgMeta`].
    #[inline]
    pub(crate) fn cost_of_copy(len: usize) -> usize {
        if len <= INLINE {
            return OVERHEAD;
        }
        OVERHEAD.saturating_add(size_of_copy(len))
    }

    /// Returns the bytes that count against the receive buffer. Constant once the message is
    /// queued.
    #[inline]
    pub(crate) fn cost(&self) -> usize {
        if self.meta.is_none() && matches!(self.payload, Payload::Inline) {
            return OVERHEAD;
        }
        self.cost_of_more()
    }

    /// Returns `true` if the payload is in receive buffers, or in packets.
    #[inline]
    pub(super) fn is_in_buffers(&self) -> bool {
        matches!(self.payload, Payload::One(_) | Payload::Many(..))
    }

    /// Returns the part of `cost` that is charged to the reader's user. Constant once the message
    /// is queued.
    #[inline]
    pub(super) fn charged(&self, cost: usize) -> Unread {
        // On the loop transport the sender is charged.
        if self.charge.is_some() {
            return Unread::default();
        }
        let in_buffers = match self.is_in_buffers() {
            true => self.payload_size(),
            false => 0,
        };
        Unread {
            in_buffers: in_buffers as u64,
            copied: cost.saturating_sub(in_buffers) as u64,
        }
    }

    /// Copies a payload out of its receive buffers. Returns `false` if there is no memory.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(super) fn copy_out(&mut self) -> bool {
        /// Small enough to be available when memory is fragmented.
        const PIECE: usize = 16 << 10;
        let mut chunks: KVec<KVVec<u8>> = KVec::new();
        let mut left = self.len as usize;
        let mut room = 0usize;
        let copied = self.try_for_each(|piece| {
            let (mut at, len) = (0usize, piece.len());
            while at < len {
                if room == 0 {
                    // At least 1, so that the loop ends whatever `len` says.
                    room = left.clamp(1, PIECE);
                    chunks.push(KVVec::with_capacity(room, GFP_ATOMIC)?, GFP_ATOMIC)?;
                }
                let now = room.min(len.saturating_sub(at));
                let chunk = chunks.last_mut().ok_or(ENOMEM)?;
                piece.append_to(chunk, at, now)?;
                left = left.saturating_sub(now);
                room = room.saturating_sub(now);
                at = at.saturating_add(now);
            }
            Ok(())
        });
        if copied.is_ok() {
            self.payload = Payload::Chunks(chunks);
        }
        copied.is_ok()
    }

    /// Returns the cost of a message that has more than an inline payload.
    fn cost_of_more(&self) -> usize {
        let meta = self.meta.as_ref().map_or(0, |_| MsgMeta::SIZE);
        OVERHEAD
            .saturating_add(self.payload_size())
            .saturating_add(meta)
    }

    /// Returns the memory of a payload that is not inline, in bytes.
    fn payload_size(&self) -> usize {
        match &self.payload {
            Payload::Inline => 0,
            Payload::Chunk(_) | Payload::Chunks(_) => size_of_copy(self.len as usize),
            Payload::One(buf) => buf.true_size(),
            Payload::Many(bufs, _) => bufs.iter().map(RecvBuf::true_size).sum(),
        }
    }

    /// Copies the payload to a reader, as far as there is room. Returns the number of bytes copied.
    ///
    /// # Errors
    ///
    /// - `EFAULT`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn copy_to(&self, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let room = msg.room();
        let mut copied = 0usize;
        self.try_for_each(|piece| {
            let len = piece.len().min(room.saturating_sub(copied));
            piece.copy_to(msg, len)?;
            copied = copied.saturating_add(len);
            Ok(())
        })?;
        Ok(copied)
    }
}

/// Treatment of a message after a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    No,
    /// The reader only peeks.
    Yes,
}
