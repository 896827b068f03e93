// SPDX-License-Identifier: GPL-2.0

//! Fragments of a message, and their buffers.

use crate::{
    kapi::net::SendMsg,
    proto::wire::{
        self,
        FragmentSize,
        Header, //
    },
    recv_pool::{
        Buf,
        BufMut,
        Context,
        FrameBuf,
        Pools, //
    }, //
};
use kernel::prelude::*;

/// Buffer of a fragment: room for the header, then the payload.
pub(super) enum Piece {
    /// Not posted.
    Ready(BufMut),
    /// Posted, perhaps to a queue pair that no longer exists.
    Posted(Buf),
    /// In a [`Frame`], or on its way from one variant to the other.
    Taken,
}

impl Piece {
    /// Returns the buffer for reading. `None` if an earlier queue pair still has it.
    pub(super) fn read(&mut self) -> Option<&[u8]> {
        if let Self::Posted(_) = self {
            if let Self::Posted(buf) = core::mem::replace(self, Self::Taken) {
                *self = buf.thaw().map_or_else(Self::Posted, Self::Ready);
            }
        }
        match self {
            Self::Ready(buf) => Some(buf.bytes()),
            _ => None,
        }
    }

    /// Takes the buffer out, to post it to queue pairs of the device that has `pools`. If that
    /// device cannot access it, the result is a copy with `len` bytes of payload, and the buffer
    /// stays.
    ///
    /// # Errors
    ///
    /// - [`FrameError`], without any change.
    pub(super) fn take(&mut self, len: u32, pools: &Pools) -> Result<Frame, FrameError> {
        let buf = match core::mem::replace(self, Self::Taken) {
            Self::Ready(buf) => buf,
            Self::Posted(buf) => match buf.thaw() {
                Ok(buf) => buf,
                Err(buf) => {
                    *self = Self::Posted(buf);
                    return Err(FrameError::InUse);
                }
            },
            Self::Taken => return Err(FrameError::InUse),
        };
        if pools.can_send(&buf) {
            return Ok(Frame {
                buf,
                copied: false,
                is_spare: false,
            });
        }
        let copy = pools.copy(&buf, len).map(Frame::of_copy);
        *self = Self::Ready(buf);
        copy.ok_or(FrameError::NoBuffer)
    }
}

/// Reason why a message has no frame to post now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The fragment must be copied, to the memory of another device or to another size, and there
    /// is no buffer.
    NoBuffer,
    /// An earlier queue pair still has the buffer, or there is no such fragment.
    InUse,
}

/// Buffer of the next fragment, without a header. It is passed to
/// [`Message::finish_frame`](super::Message::finish_frame).
pub(crate) struct Frame {
    pub(super) buf: BufMut,
    /// The payload was copied to the buffer, which is only for this frame. Otherwise the buffer
    /// belongs to the message.
    pub(crate) copied: bool,
    /// The frame has to report its completion, see [`FrameBuf`].
    pub(crate) is_spare: bool,
}

impl Frame {
    pub(super) fn of_copy(copy: FrameBuf) -> Self {
        Self {
            buf: copy.buf,
            copied: true,
            is_spare: copy.is_spare,
        }
    }
}

/// Fragments of a message.
pub(super) enum Fragments {
    One(Piece),
    Many(KVec<Piece>),
}

impl Fragments {
    /// Allocates buffers for `len` bytes of payload, and returns the fragment size. That is `most`,
    /// or less if there is memory only in smaller pieces.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` if the pool is at its limit.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn alloc(
        pools: &Pools,
        most: FragmentSize,
        len: u32,
    ) -> Result<(FragmentSize, Self)> {
        let mut cut = most;
        loop {
            let made = Self::alloc_cut(pools, cut, len);
            match cut.smaller() {
                // Both cuts take a short message from the same pool.
                Some(smaller)
                    if len > smaller.bytes()
                        && made.as_ref().is_err_and(|&e| e == ENOMEM || e == ENOSPC) =>
                {
                    cut = smaller
                }
                _ => return Ok((cut, made?)),
            }
        }
    }

    fn alloc_cut(pools: &Pools, cut: FragmentSize, len: u32) -> Result<Self> {
        let alloc = |part: wire::Fragment| -> Result<Piece> {
            let buf = pools.alloc_message(part.len, Context::MaySleep)?;
            Ok(Piece::Ready(buf))
        };
        let first = wire::fragment(len, 0, cut).ok_or(EINVAL)?;
        if first.last {
            return Ok(Self::One(alloc(first)?));
        }
        let count = wire::fragments(len, cut);
        let mut pieces = KVec::with_capacity(count as usize, GFP_KERNEL_ACCOUNT)?;
        for index in 0..count {
            let part = wire::fragment(len, index, cut).ok_or(EINVAL)?;
            pieces.push(alloc(part)?, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self::Many(pieces))
    }

    /// Copies the payload of a system call to new buffers.
    ///
    /// # Errors
    ///
    /// - `EFAULT`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn fill(&mut self, len: u32, cut: FragmentSize, msg: &mut SendMsg<'_>) -> Result {
        let pieces = match self {
            Self::One(piece) => core::slice::from_mut(piece),
            Self::Many(pieces) => pieces.as_mut_slice(),
        };
        for (index, piece) in (0..).zip(pieces) {
            let part = wire::fragment(len, index, cut).ok_or(EINVAL)?;
            let end = Header::LEN.saturating_add(part.len as usize);
            let Piece::Ready(buf) = piece else {
                return Err(EINVAL);
            };
            let room = buf.bytes_mut().get_mut(Header::LEN..end).ok_or(EINVAL)?;
            msg.copy_to_slice(room)?;
        }
        Ok(())
    }
}
