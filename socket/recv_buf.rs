// SPDX-License-Identifier: GPL-2.0

//! Memory in which payload arrived, and which a message keeps until it is read.
//!
//! It belongs to the transport: each kind of memory is a variant of [`RecvBuf`]. All code above
//! this file handles the kinds in the same way.

use crate::{
    kapi::net::{
        packet::PacketPart,
        RecvMsg, //
    },
    proto::wire::Header,
    recv_pool::BufMut, //
};
use kernel::prelude::*;

/// Memory of a frame that has arrived. Dropping it returns the memory to its transport.
pub(crate) enum RecvBuf {
    /// A buffer of a pool, with a header and the payload behind it.
    Pooled(BufMut),
    /// Payload in a packet of a stream.
    Packet(PacketPart),
}

/// Messages in fragments have a list of these.
const _: () = assert!(size_of::<RecvBuf>() == size_of::<BufMut>());

/// Bytes of payload, where they are.
#[derive(Clone, Copy)]
pub(super) enum PayloadRef<'a> {
    Bytes(&'a [u8]),
    Packet(&'a PacketPart),
}

impl PayloadRef<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Packet(part) => part.len(),
        }
    }

    /// Copies the first `len` bytes, or all if they are fewer, to a program.
    ///
    /// # Errors
    ///
    /// - `EFAULT`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn copy_to(self, msg: &mut RecvMsg<'_>, len: usize) -> Result {
        let len = len.min(self.len());
        match self {
            Self::Bytes(bytes) => msg.copy_from_slice(bytes.get(..len).unwrap_or(&[])),
            Self::Packet(part) => msg.copy_from_packet(part, len),
        }
    }

    /// Appends `len` bytes from `at` on to `out`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EFAULT` if there are fewer bytes.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn append_to(self, out: &mut KVVec<u8>, at: usize, len: usize) -> Result {
        match self {
            Self::Bytes(bytes) => {
                let bytes = bytes.get(at..at.saturating_add(len)).ok_or(EFAULT)?;
                Ok(out.extend_from_slice(bytes, GFP_ATOMIC)?)
            }
            Self::Packet(part) => part.append_to(out, at, len),
        }
    }
}

impl RecvBuf {
    /// Returns the payload, which has `len` bytes in a buffer of a pool.
    #[inline]
    pub(super) fn payload(&self, len: usize) -> PayloadRef<'_> {
        match self {
            Self::Pooled(buf) => {
                let end = Header::LEN.saturating_add(len);
                PayloadRef::Bytes(buf.bytes().get(Header::LEN..end).unwrap_or(&[]))
            }
            Self::Packet(part) => PayloadRef::Packet(part),
        }
    }

    /// Returns the memory that is kept, in bytes.
    #[inline]
    pub(super) fn true_size(&self) -> usize {
        match self {
            Self::Pooled(buf) => buf.true_size(),
            Self::Packet(part) => part.true_size(),
        }
    }
}
