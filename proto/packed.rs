// SPDX-License-Identifier: GPL-2.0

//! Several short messages in one frame.
//!
//! To a device a message of a few bytes costs what one of a page costs: a work request, a packet and
//! its acknowledgement. When many short ones wait for a peer that said it takes them so, they go
//! together: each with its header, as if it was a frame of its own, and from a multiple of
//! [`ALIGN`] bytes on.
//!
//! Nothing marks such a frame. The first message ends before the frame does, which no other frame
//! may.

use super::wire::{Header, HeaderError};

/// Where in the frame the next message may begin, in bytes.
const ALIGN: usize = 8;

/// The longest payload of a message that shares a frame, in bytes. The messages are copied, at both
/// ends: for longer ones that would cost more than their frames do.
pub(crate) const LONGEST: u32 = 512;

/// The most bytes of such a frame behind the header of its first message, so that a frame is not too
/// much work at once.
pub(crate) const ROOM: u32 = 4096;

/// The most bytes of such a frame.
pub(crate) const LONGEST_FRAME: u32 = Header::LEN as u32 + ROOM;

/// How many bytes of a frame a message of `len` takes, with what fills up behind it.
pub(crate) fn bytes(len: u32) -> u32 {
    let framed = len.saturating_add(Header::LEN as u32);
    framed
        .checked_next_multiple_of(ALIGN as u32)
        .unwrap_or(u32::MAX)
}

/// Why a frame cannot be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// So many bytes are left, too few for a header.
    Short(usize),
    /// The frame is longer than [`ROOM`] allows: its length.
    Long(usize),
    /// A header breaks a rule.
    Header(HeaderError),
    /// The last message is cut off: its length, and how many bytes there are.
    Cut(u32, usize),
}

/// Bytes of a message with its header, before what fills up to the next.
const fn framed(len: usize) -> usize {
    Header::LEN.saturating_add(len)
}

/// How much of `used` bytes and what follows them is taken before the next message can begin.
fn aligned(used: usize) -> Option<usize> {
    used.checked_next_multiple_of(ALIGN)
}

/// Puts messages into a frame.
pub(crate) struct Packer<'a> {
    frame: &'a mut [u8],
    used: usize,
}

impl<'a> Packer<'a> {
    /// An empty frame in `frame`, or at its start if it is longer than frames are.
    pub(crate) fn new(frame: &'a mut [u8]) -> Self {
        let most = frame.len().min(LONGEST_FRAME as usize);
        Self {
            frame: frame.get_mut(..most).unwrap_or_default(),
            used: 0,
        }
    }

    /// Whether there is room for a message of `len` bytes.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        let end = aligned(self.used).and_then(|at| at.checked_add(framed(len as usize)));
        end.is_some_and(|end| end <= self.frame.len())
    }

    /// Adds a message. False, and nothing is changed, if there is no room.
    pub(crate) fn push(&mut self, header: &Header, payload: &[u8]) -> bool {
        let Some(at) = aligned(self.used) else {
            return false;
        };
        let Some((fill, place)) = self
            .frame
            .get_mut(self.used..)
            .and_then(|rest| rest.split_at_mut_checked(at.saturating_sub(self.used)))
        else {
            return false;
        };
        let Some((head, rest)) = place.split_first_chunk_mut::<{ Header::LEN }>() else {
            return false;
        };
        let Some(body) = rest.get_mut(..payload.len()) else {
            return false;
        };
        fill.fill(0);
        header.emit(head);
        body.copy_from_slice(payload);
        self.used = at.saturating_add(framed(payload.len()));
        true
    }

    /// Bytes of the frame so far.
    pub(crate) fn len(&self) -> u32 {
        // CAST: at most those of a frame.
        self.used as u32
    }
}

/// The messages of a frame, in order. Ends with the first error.
pub(crate) struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// The messages of `frame`.
    pub(crate) const fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    fn split(&mut self) -> Result<(Header, &'a [u8]), SplitError> {
        let frame = core::mem::take(&mut self.rest);
        if frame.len() > LONGEST_FRAME as usize {
            return Err(SplitError::Long(frame.len()));
        }
        let Some((head, rest)) = frame.split_first_chunk() else {
            return Err(SplitError::Short(frame.len()));
        };
        let header = Header::parse(head).map_err(SplitError::Header)?;
        let len = header.len as usize;
        let payload = rest
            .get(..len)
            .ok_or(SplitError::Cut(header.len, rest.len()))?;
        let used = framed(len);
        if used < frame.len() {
            // What fills up is in front of another message only.
            self.rest = aligned(used)
                .and_then(|next| frame.get(next..))
                .filter(|rest| !rest.is_empty())
                .ok_or(SplitError::Short(frame.len().saturating_sub(used)))?;
        }
        Ok((header, payload))
    }
}

impl<'a> Iterator for Unpacker<'a> {
    type Item = Result<(Header, &'a [u8]), SplitError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.split())
    }
}
