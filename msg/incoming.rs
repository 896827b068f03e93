// SPDX-License-Identifier: GPL-2.0

//! A message that has arrived and waits to be read.

use super::{MsgMeta, SndbufCharge, Stamps};
use crate::kapi::{alloc::kmalloc_size, net::RecvMsg, sync::Item, InlineBytes};
use crate::proto::{rcvbuf::Unread, rdma::RdmaExthdrs, wire::Header};
use crate::recv_pool::BufMut;
use core::net::Ipv6Addr;
use kernel::{alloc::AllocError, prelude::*};

/// Payloads up to this many bytes are kept in the message itself. One that arrived is copied out, so
/// that its buffer can be posted again at once.
pub(crate) const INLINE: usize = 152;

/// Bytes of payload in one of [`Payload::Chunks`], but for the last one.
pub(crate) const CHUNK: usize = 64 << 10;

/// What a message takes beyond its payload, in bytes.
const OVERHEAD: usize = Item::<Incoming>::SIZE;

/// What a copy of `len` bytes of payload takes of memory, in bytes.
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

/// The bytes of a message.
pub(crate) enum Payload {
    /// A short one, in [`Incoming::inline`].
    Inline,
    /// In memory of its own.
    Chunk(KVVec<u8>),
    /// In memory of its own, in pieces.
    Chunks(KVec<KVVec<u8>>),
    /// In the buffer that it arrived in, behind the header.
    One(BufMut),
    /// In the buffers that it arrived in, behind their headers. All but the last have as much as the
    /// first, this many bytes.
    Many(KVec<BufMut>, u32),
}

impl Incoming {
    /// Calls `f` with the payload's pieces in order, until it fails.
    fn try_for_each(&self, mut f: impl FnMut(&[u8]) -> Result) -> Result {
        /// The first `len` bytes of payload in a buffer.
        fn behind_header(buf: &BufMut, len: usize) -> &[u8] {
            let end = Header::LEN.saturating_add(len);
            buf.bytes().get(Header::LEN..end).unwrap_or(&[])
        }

        let len = self.len as usize;
        match &self.payload {
            Payload::One(buf) => f(behind_header(buf, len)),
            Payload::Many(bufs, size) => {
                let mut left = len;
                bufs.iter().try_for_each(|buf| {
                    let piece = behind_header(buf, left.min(*size as usize));
                    left = left.saturating_sub(piece.len());
                    f(piece)
                })
            }
            Payload::Inline => f(self.inline.as_slice()),
            Payload::Chunk(chunk) => f(chunk),
            Payload::Chunks(chunks) => chunks.iter().try_for_each(|chunk| f(chunk)),
        }
    }
}

/// A message on its way to a reader. It refers to nothing of the connection that brought it.
pub(crate) struct Incoming {
    /// Who sent it.
    pub(crate) saddr: Ipv6Addr,
    pub(crate) sport: u16,
    /// The type of service of the connection that brought it, or of the sender on the loop transport.
    pub(crate) tos: u8,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Its number on the connection that brought it; 0 on the loop transport.
    pub(crate) sequence: u64,
    /// The link of addresses that are link-local, the sender's or the receiver's; else 0.
    pub(crate) scope: u32,
    pub(crate) meta: Option<KBox<MsgMeta>>,
    pub(crate) payload: Payload,
    pub(crate) inline: InlineBytes<INLINE>,
    /// On the loop transport the sender pays until the message is read.
    pub(crate) charge: Option<SndbufCharge>,
}

/// With the link of its queue this is one piece of memory of 256 bytes.
const _: () = assert!(OVERHEAD == 256);

impl Incoming {
    /// A message of `len` bytes that are still to be added: there are none yet.
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

    /// Gives the message a copy of `bytes` in memory of its own. False if there is none. Any context.
    pub(crate) fn set_copy(&mut self, bytes: &[u8]) -> bool {
        let mut copy = KVVec::new();
        let copied = copy.extend_from_slice(bytes, GFP_ATOMIC).is_ok();
        if copied {
            self.payload = Payload::Chunk(copy);
        }
        copied
    }

    /// Adds what the sender says.
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

    /// Whether its times are noted.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.meta.as_ref().is_some_and(|it| it.stamps.is_some())
    }

    /// The message is being queued at a socket whose program wants to know times. Without memory it has none. Any context.
    #[cold]
    pub(super) fn note_delivery(&mut self) {
        if self.meta.is_none() {
            self.meta = MsgMeta::with_stamps();
        }
        if let Some(meta) = &mut self.meta {
            meta.stamps.get_or_insert_with(Stamps::arrive).deliver();
        }
    }

    /// What a message of `len` bytes takes of memory on the loop transport, in bytes, without [`MsgMeta`].
    #[inline]
    pub(crate) fn cost_of_copy(len: usize) -> usize {
        if len <= INLINE {
            return OVERHEAD;
        }
        OVERHEAD.saturating_add(size_of_copy(len))
    }

    /// What the message takes of the receiver's buffer, in bytes of memory. It does not change once it is queued.
    #[inline]
    pub(crate) fn cost(&self) -> usize {
        if self.meta.is_none() && matches!(self.payload, Payload::Inline) {
            return OVERHEAD;
        }
        self.cost_of_more()
    }

    /// Whether the payload is in the buffers that it came in.
    #[inline]
    pub(super) fn is_in_buffers(&self) -> bool {
        matches!(self.payload, Payload::One(_) | Payload::Many(..))
    }

    /// What of its `cost` the reader's user is charged with. It does not change once it is queued.
    #[inline]
    pub(super) fn charged(&self, cost: usize) -> Unread {
        // On the loop transport the sender pays.
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

    /// Moves a payload out of the buffers that it came in to memory of its own. False if there is
    /// none. Any context.
    #[cold]
    pub(super) fn copy_out(&mut self) -> bool {
        /// Of a size that there is also if memory is in pieces.
        const PIECE: usize = 16 << 10;
        let mut chunks: KVec<KVVec<u8>> = KVec::new();
        let mut left = self.len as usize;
        let mut room = 0usize;
        let copied = self.try_for_each(|bytes| {
            let mut rest = bytes;
            while !rest.is_empty() {
                if room == 0 {
                    // Whatever a buffer says, this ends.
                    room = left.clamp(1, PIECE);
                    chunks.push(KVVec::with_capacity(room, GFP_ATOMIC)?, GFP_ATOMIC)?;
                }
                let (now, later) = rest.split_at_checked(room).unwrap_or((rest, &[]));
                let chunk = chunks.last_mut().ok_or(ENOMEM)?;
                chunk.extend_from_slice(now, GFP_ATOMIC)?;
                left = left.saturating_sub(now.len());
                room = room.saturating_sub(now.len());
                rest = later;
            }
            Ok(())
        });
        if copied.is_ok() {
            self.payload = Payload::Chunks(chunks);
        }
        copied.is_ok()
    }

    /// What a message takes that is more than a few bytes.
    fn cost_of_more(&self) -> usize {
        let meta = self.meta.as_ref().map_or(0, |_| MsgMeta::SIZE);
        OVERHEAD
            .saturating_add(self.payload_size())
            .saturating_add(meta)
    }

    /// What the payload takes of memory of its own, in bytes.
    fn payload_size(&self) -> usize {
        match &self.payload {
            Payload::Inline => 0,
            Payload::Chunk(_) | Payload::Chunks(_) => size_of_copy(self.len as usize),
            Payload::One(buf) => buf.true_size(),
            Payload::Many(bufs, _) => bufs.iter().map(BufMut::true_size).sum(),
        }
    }

    /// Copies the payload to a reader, as much as there is room for, and returns how much that was.
    ///
    /// Fails with EFAULT. May sleep.
    pub(crate) fn copy_to(&self, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let room = msg.room();
        let mut copied = 0usize;
        self.try_for_each(|piece| {
            let piece = piece
                .get(..piece.len().min(room.saturating_sub(copied)))
                .unwrap_or(&[]);
            msg.copy_from_slice(piece)?;
            copied = copied.saturating_add(piece.len());
            Ok(())
        })?;
        Ok(copied)
    }
}
