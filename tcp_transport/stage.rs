// SPDX-License-Identifier: GPL-2.0

//! Frames that wait for the socket of an endpoint.
//!
//! A connection transmits with a spinlock held, under which no socket can be used. So its frames
//! are staged, and the work of the endpoint, or a program, sends them. A full stage makes the
//! connection wait.

use crate::{
    kapi::rdma::SendItem,
    proto::{
        tcp_stream::{
            HeaderBytes,
            Outgoing, //
        },
        wire::Header, //
    },
    recv_pool::Buf, //
};
use kernel::{
    alloc::Flags,
    prelude::*, //
};

/// Maximum number of frames.
const FRAMES: usize = 128;

/// The same before [`FrameStage::grow`].
const FEW_FRAMES: usize = 16;

/// Memory for the frames.
pub(super) type StageRing = KVVec<Option<Staged>>;

/// Allocates memory for [`FrameStage::grow`].
///
/// # Errors
///
/// - `ENOMEM`
///
/// # Context
///
/// May sleep.
pub(super) fn large_ring() -> Result<StageRing> {
    ring(FRAMES, GFP_KERNEL | __GFP_NOWARN)
}

fn ring(frames: usize, flags: Flags) -> Result<StageRing> {
    let mut ring = KVVec::with_capacity(frames, flags)?;
    for _ in 0..frames {
        ring.push(None, flags)?;
    }
    Ok(ring)
}

/// A frame in the stream.
pub(super) struct Staged {
    header: Option<HeaderBytes>,
    buf: Buf,
    /// Bytes of payload.
    len: usize,
    /// Sequence number of the message that ends with the frame. 0 for what is no message.
    pub(super) ends: u64,
}

impl Staged {
    /// Returns the header and the payload. Either may be empty.
    pub(super) fn bytes(&self) -> (&[u8], &[u8]) {
        let header = self.header.as_ref().map_or(&[][..], |header| header);
        let end = Header::LEN.saturating_add(self.len);
        let payload = self.buf.bytes().get(Header::LEN..end);
        (header, payload.unwrap_or(&[]))
    }

    /// Returns the number of bytes in the stream.
    pub(super) fn len(&self) -> usize {
        let (header, payload) = self.bytes();
        header.len().saturating_add(payload.len())
    }
}

/// The frames that wait, oldest first.
pub(super) struct FrameStage {
    ring: StageRing,
    first: usize,
    count: usize,
    outgoing: Outgoing,
}

impl FrameStage {
    /// Creates an empty stage, with room only for a socket that carries messages.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(carries: bool) -> Result<Self> {
        Ok(Self {
            ring: ring(if carries { FEW_FRAMES } else { 0 }, GFP_KERNEL)?,
            first: 0,
            count: 0,
            outgoing: Outgoing::new(),
        })
    }

    /// Returns the number of frames.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of frames for which there is room.
    pub(super) fn room(&self) -> usize {
        self.ring.len().saturating_sub(self.count)
    }

    /// Moves the frames to another memory with at least as many places, in exchange for their own.
    pub(super) fn grow(&mut self, ring: &mut StageRing) {
        let count = self.count.min(ring.len());
        for place in ring.iter_mut().take(count) {
            *place = self.pop();
        }
        core::mem::swap(&mut self.ring, ring);
        (self.first, self.count) = (0, count);
    }

    /// Returns the index of the frame behind `count` others.
    fn at(&self, count: usize) -> Option<usize> {
        let at = self.first.wrapping_add(count);
        at.checked_rem(self.ring.len())
    }

    /// Adds a frame.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if it does not continue the message before it, or there is no room.
    pub(super) fn push(&mut self, item: SendItem) -> Result {
        let header = item.buf.bytes().first_chunk().ok_or(EINVAL)?;
        // CAST: a header has 48 bytes.
        let len = item.len.checked_sub(Header::LEN as u32).ok_or(EINVAL)?;
        let piece = self.outgoing.push(header, len).map_err(|_| EINVAL)?;
        let at = self.at(self.count).ok_or(EINVAL)?;
        let place = self.ring.get_mut(at).filter(|place| place.is_none());
        *place.ok_or(EINVAL)? = Some(Staged {
            header: piece.header,
            buf: item.buf,
            len: len as usize,
            ends: piece.ends,
        });
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Takes the oldest frame.
    pub(super) fn pop(&mut self) -> Option<Staged> {
        let frame = self.ring.get_mut(self.first)?.take()?;
        self.first = self.at(1).unwrap_or(0);
        self.count = self.count.saturating_sub(1);
        Some(frame)
    }
}
