// SPDX-License-Identifier: GPL-2.0

//! The stream of RDS over TCP: for each message one header, then its payload.
//!
//! A connection builds frames as for other transports: each has a header, and at most one fragment
//! of payload. [`Outgoing`] turns them into the stream, which has the header of the first fragment
//! only. On the way in, [`announced`] says how a header goes on, and [`part`] cuts its payload into
//! frames again.
//!
//! C RDS acknowledges nothing in its headers, and a header without a message would change the
//! sequence number that it expects. It ignores a congestion update without a map, so
//! acknowledgements alone travel in such control frames. Nodes of this module recognise each other
//! by the first frame, the congestion map, which has [`CAP_TCP_ACK`]. They acknowledge messages
//! that were delivered. All other peers count a message as delivered when TCP has it.
//!
//! Ownership: the bytes stay with the caller. Errors: [`HeaderError`] ends the connection.

use super::{
    exthdr::{
        self,
        Extension,
        Extensions,
        CAP_TCP_ACK, //
    },
    wire::{
        Flags,
        FragmentSize,
        Header,
        HeaderError,
        CONG_MAP_BYTES,
        PING_PORT,
        PROBE_PORT, //
    }, //
};

/// Port of the listener on each node.
pub(crate) const PORT: u16 = 16385;

/// Offsets and lengths of the fields of a header that are changed here.
const ACK: core::ops::Range<usize> = 8..16;
const FLAGS: usize = 24;
const CHECKSUM: core::ops::Range<usize> = 30..32;
const EXTENSIONS: core::ops::Range<usize> = 32..Header::LEN;

/// Bytes of a header.
pub(crate) type HeaderBytes = [u8; Header::LEN];

/// Sets all bytes of a range.
fn clear(bytes: &mut HeaderBytes, range: core::ops::Range<usize>) {
    if let Some(field) = bytes.get_mut(range) {
        field.fill(0);
    }
}

fn flags(bytes: &HeaderBytes) -> u8 {
    bytes.get(FLAGS).copied().unwrap_or(0)
}

fn set_flags(bytes: &mut HeaderBytes, flags: Flags) {
    if let Some(field) = bytes.get_mut(FLAGS) {
        *field = flags.bits();
    }
}

/// Returns `true` if a header begins a congestion map, by its flags alone.
pub(crate) fn is_map(bytes: &HeaderBytes) -> bool {
    flags(bytes) & Flags::CONG_BITMAP.bits() != 0
}

/// Returns the payload length that a header announces, without any check.
fn len(bytes: &HeaderBytes) -> u32 {
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = *bytes;
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the sequence number of a header, without any check.
fn sequence(bytes: &HeaderBytes) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |first| u64::from_be_bytes(*first))
}

/// Content of a frame in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPiece {
    /// Header to send before the payload, if the frame begins a message.
    pub(crate) header: Option<HeaderBytes>,
    /// Sequence number of the message that ends with the frame. 0 for what is no message.
    pub(crate) ends: u64,
}

/// Error: a frame does not continue the message before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotContinued;

/// Position of the outgoing stream within a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Payload bytes of the message that have not been in a frame.
    left: u32,
}

impl Outgoing {
    /// Creates the position at the start of a connection.
    pub(crate) const fn new() -> Self {
        Self { left: 0 }
    }

    /// Adds a frame of `payload` bytes behind its header.
    ///
    /// # Errors
    ///
    /// - [`NotContinued`]
    pub(crate) fn push(
        &mut self,
        header: &HeaderBytes,
        payload: u32,
    ) -> Result<StreamPiece, NotContinued> {
        let begins = self.left == 0;
        let before = if begins { len(header) } else { self.left };
        let left = before.checked_sub(payload).ok_or(NotContinued)?;
        if !begins && payload == 0 {
            return Err(NotContinued);
        }
        self.left = left;
        let is_message = flags(header) & Flags::CONG_BITMAP.bits() == 0;
        Ok(StreamPiece {
            header: begins.then(|| outgoing(header)),
            ends: if left == 0 && is_message {
                sequence(header)
            } else {
                0
            },
        })
    }
}

/// Returns a header in the form of the stream.
fn outgoing(header: &HeaderBytes) -> HeaderBytes {
    let mut bytes = *header;
    // TCP has a checksum of its own.
    clear(&mut bytes, CHECKSUM);
    if len(&bytes) == 0 && sequence(&bytes) == 0 {
        set_flags(&mut bytes, Flags::CONG_BITMAP);
        clear(&mut bytes, EXTENSIONS);
    } else if flags(&bytes) & Flags::CONG_BITMAP.bits() != 0 {
        introduce(&mut bytes);
    }
    bytes
}

/// Replaces the capabilities of an introduction by those of TCP.
fn introduce(bytes: &mut HeaderBytes) {
    let Some(space) = bytes.last_chunk_mut::<{ exthdr::SPACE }>() else {
        return;
    };
    let number = Extensions::new(space).find_map(|it| match it {
        Extension::GenNum(number) => Some(number),
        _ => None,
    });
    let path = path_in(space);
    *space = number.map_or([0; exthdr::SPACE], |number| {
        exthdr::tcp_introduction(number, path)
    });
}

/// Returns the path in the extensions of a map, or the first one.
fn path_in(space: &[u8; exthdr::SPACE]) -> u8 {
    let path = Extensions::new(space).find_map(|it| match it {
        Extension::SportIdx(path) => Some(path),
        _ => None,
    });
    path.unwrap_or(0)
}

/// Content that follows a header in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// Nothing: the header is a control frame. It has been turned into an acknowledgement alone.
    Control,
    /// This many bytes of payload.
    Payload(u32),
}

/// Checks a received header and says how it goes on.
///
/// # Errors
///
/// - [`HeaderError`]
pub(crate) fn announced(bytes: &mut HeaderBytes) -> Result<Announced, HeaderError> {
    if flags(bytes) == Flags::CONG_BITMAP.bits() && len(bytes) == 0 {
        // Everything but the acknowledgement is for other versions.
        let mut ack = [0; ACK.end - ACK.start];
        if let Some(field) = bytes.get(ACK) {
            ack.copy_from_slice(field);
        }
        *bytes = [0; Header::LEN];
        if let Some(field) = bytes.get_mut(ACK) {
            field.copy_from_slice(&ack);
        }
        return Ok(Announced::Control);
    }
    Header::parse(bytes).map(|header| Announced::Payload(header.len))
}

/// Returns the path for which the peer has made a connection, by its first header. `None` if only
/// the port tells: the peer runs other software.
pub(crate) fn introduced_path(bytes: &HeaderBytes) -> Option<u8> {
    let space = bytes.last_chunk::<{ exthdr::SPACE }>()?;
    acknowledges(bytes).then(|| path_in(space))
}

/// Returns `true` if a header shows that the peer acknowledges messages that were delivered. It is
/// the first one of a connection, or the peer does not.
pub(crate) fn acknowledges(bytes: &HeaderBytes) -> bool {
    let Some(space) = bytes.last_chunk::<{ exthdr::SPACE }>() else {
        return false;
    };
    flags(bytes) == Flags::CONG_BITMAP.bits()
        && Extensions::new(space)
            .any(|it| matches!(it, Extension::CapBits(bits) if bits & CAP_TCP_ACK != 0))
}

/// Bytes of a stream that hold no message, if no header has arrived.
const WITHOUT_HEADER: u32 = Header::LEN as u32 - 1;

/// Returns `true` if what a header announces may be lost: a congestion map, or the question for the
/// number of paths.
///
/// C sends the map again on the next connection. The question is only sent again if TCP has not
/// acknowledged it. C remembers that it has asked until a header with an answer comes, and drops
/// acknowledged frames. Without an answer it goes on with one path. This module has only one.
fn is_expendable(bytes: &HeaderBytes) -> bool {
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = *bytes;
    let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let is_map = flags(bytes) & Flags::CONG_BITMAP.bits() != 0;
    is_map || (ports == (PROBE_PORT, PING_PORT) && len(bytes) == 0)
}

/// Bytes from the beginning of a stream that [`without_message`] needs. A C peer without a message
/// sends a congestion map, and the question for the number of paths.
pub(crate) const BEGINNING: usize = 2 * Header::LEN + CONG_MAP_BYTES as usize;

/// Returns the most bytes that a stream with this beginning may have without holding a whole
/// message. A peer that acknowledges sends messages again, so its have no limit.
pub(crate) fn without_message(beginning: &[u8]) -> u32 {
    let header = |at: u32| -> Option<&HeaderBytes> { beginning.get(at as usize..)?.first_chunk() };
    if header(0).is_some_and(acknowledges) {
        return u32::MAX;
    }
    let mut at = 0;
    while let Some(bytes) = header(at) {
        // CAST: a header has 48 bytes.
        let end = len(bytes)
            .saturating_add(at)
            .saturating_add(Header::LEN as u32);
        if !is_expendable(bytes) {
            return end.saturating_sub(1);
        }
        at = end;
    }
    at.saturating_add(WITHOUT_HEADER)
}

/// Returns the fragment size for the frames of a message of `len` bytes, at most `most`.
pub(crate) fn cut(len: u32, most: FragmentSize) -> FragmentSize {
    FragmentSize::at_least(len).min(most)
}

/// Returns the payload of the next frame, if `left` bytes of the message are left.
pub(crate) fn part(left: u32, size: FragmentSize) -> u32 {
    left.min(size.bytes())
}
