// SPDX-License-Identifier: GPL-2.0

//! Packed frames: several short messages in one frame.
//!
//! A message of a few bytes costs a device as much as one of a page: a work request, a packet and
//! its acknowledgement. So short messages that wait together are packed, if the peer has announced
//! that it accepts that. Each message has its header, as in a frame of its own, and begins at a
//! multiple of [`ALIGN`] bytes.
//!
//! No flag marks a packed frame. Its first message ends before the frame does, which is not allowed
//! in any other frame.

use super::wire::{
    Header,
    HeaderError, //
};

/// Alignment of the messages in a frame, in bytes.
const ALIGN: usize = 8;

/// Longest payload of a message that shares a frame, in bytes. Messages are copied at both ends;
/// for longer ones the copies would cost more than separate frames.
pub(crate) const LONGEST: u32 = 512;

/// Longest packed frame behind the header of its first message, in bytes. It bounds the work for
/// one frame.
pub(crate) const ROOM: u32 = 4096;

/// Longest packed frame, in bytes.
pub(crate) const LONGEST_FRAME: u32 = Header::LEN as u32 + ROOM;

/// Returns the bytes of a frame that a message of `len` bytes takes, with the padding behind it.
pub(crate) fn bytes(len: u32) -> u32 {
    let framed = len.saturating_add(Header::LEN as u32);
    framed
        .checked_next_multiple_of(ALIGN as u32)
        .unwrap_or(u32::MAX)
}

/// Reason for which a frame cannot be split into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// Too few bytes for a header are left; the value is their number.
    Short(usize),
    /// The frame is longer than [`ROOM`] allows; the value is its length.
    Long(usize),
    /// A header breaks a rule.
    Header(HeaderError),
    /// The last message is incomplete; the values are its length and the number of bytes left.
    Cut(u32, usize),
}

/// Returns the bytes of a message with its header, without padding.
const fn framed(len: usize) -> usize {
    Header::LEN.saturating_add(len)
}

/// Returns the offset at which the next message may begin behind `used` bytes.
fn aligned(used: usize) -> Option<usize> {
    used.checked_next_multiple_of(ALIGN)
}

/// Writer that packs messages into a frame.
pub(crate) struct Packer<'a> {
    frame: &'a mut [u8],
    used: usize,
}

impl<'a> Packer<'a> {
    /// Creates an empty frame in `frame`. Uses at most [`LONGEST_FRAME`] bytes of it.
    pub(crate) fn new(frame: &'a mut [u8]) -> Self {
        let most = frame.len().min(LONGEST_FRAME as usize);
        Self {
            frame: frame.get_mut(..most).unwrap_or_default(),
            used: 0,
        }
    }

    /// Returns `true` if there is room for a message of `len` bytes.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        let end = aligned(self.used).and_then(|at| at.checked_add(framed(len as usize)));
        end.is_some_and(|end| end <= self.frame.len())
    }

    /// Appends a message. Returns `false` and changes nothing if there is no room.
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

    /// Returns the length of the frame so far, in bytes.
    pub(crate) fn len(&self) -> u32 {
        // CAST: at most the length of a frame.
        self.used as u32
    }
}

/// Iterator over the messages of a frame, in order. Ends with the first error.
pub(crate) struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// Creates an iterator over the messages of `frame`.
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
            // Padding is allowed only in front of another message.
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
