// SPDX-License-Identifier: GPL-2.0

//! A message that has arrived and waits to be read.

use super::Ticket;
use crate::kapi::{net::RecvMsg, sync::Linked};
use crate::proto::wire::{Header, FRAGMENT};
use crate::recv_pool::BufMut;
use core::net::Ipv6Addr;
use kernel::prelude::*;

/// Payloads up to this many bytes are kept in the message itself.
pub(crate) const INLINE: usize = 160;

/// What a message costs its receiver beyond its payload, in bytes.
const OVERHEAD: usize = 256;

/// The bytes of a message.
pub(crate) enum Payload {
    /// A short one, copied.
    Inline { len: u8, bytes: [u8; INLINE] },
    /// In memory of its own, in pieces.
    Chunks(KVec<KVVec<u8>>),
    /// In the buffer that it arrived in, behind the header.
    One(BufMut),
    /// In the buffers that it arrived in, behind their headers; all but the last are full.
    Many(KVec<BufMut>),
}

impl Payload {
    /// No bytes at all.
    pub(crate) const EMPTY: Self = Self::Inline {
        len: 0,
        bytes: [0; INLINE],
    };

    /// Calls `f` with the payload's pieces in order, until it fails.
    fn try_for_each(&self, len: usize, mut f: impl FnMut(&[u8]) -> Result) -> Result {
        /// The payload in a buffer, of which `left` bytes are to come.
        fn behind_header(buf: &BufMut, left: usize) -> &[u8] {
            let end = Header::LEN.saturating_add(left.min(FRAGMENT as usize));
            buf.bytes().get(Header::LEN..end).unwrap_or(&[])
        }

        match self {
            Self::One(buf) => f(behind_header(buf, len)),
            Self::Many(bufs) => {
                let mut left = len;
                bufs.iter().try_for_each(|buf| {
                    let piece = behind_header(buf, left);
                    left = left.saturating_sub(piece.len());
                    f(piece)
                })
            }
            Self::Inline { len, bytes } => f(bytes.get(..usize::from(*len)).unwrap_or(&[])),
            Self::Chunks(chunks) => chunks.iter().try_for_each(|chunk| f(chunk)),
        }
    }
}

/// A message on its way to a reader. It refers to nothing of the connection that brought it.
pub(crate) struct Incoming {
    next: Option<KBox<Incoming>>,
    /// Who sent it.
    pub(crate) saddr: Ipv6Addr,
    pub(crate) sport: u16,
    /// Payload bytes.
    pub(crate) len: u32,
    pub(crate) payload: Payload,
    /// On the loop transport the sender pays until the message is read.
    pub(crate) ticket: Option<Ticket>,
}

impl Incoming {
    pub(crate) fn new(saddr: Ipv6Addr, sport: u16, len: u32, payload: Payload) -> Self {
        Self {
            next: None,
            saddr,
            sport,
            len,
            payload,
            ticket: None,
        }
    }

    /// What the message takes of the receiver's buffer, in bytes of memory.
    pub(crate) fn cost(&self) -> usize {
        let payload = match &self.payload {
            Payload::Inline { .. } => 0,
            Payload::Chunks(_) => self.len as usize,
            Payload::One(buf) => buf.capacity(),
            Payload::Many(bufs) => bufs.iter().map(BufMut::capacity).sum(),
        };
        OVERHEAD.saturating_add(payload)
    }

    /// Copies the payload to a reader, as much as there is room for, and returns how much that was.
    ///
    /// Fails with EFAULT. May sleep.
    pub(crate) fn copy_to(&self, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let room = msg.room();
        let mut copied = 0usize;
        self.payload.try_for_each(self.len as usize, |piece| {
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

impl Linked for Incoming {
    fn next(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}
