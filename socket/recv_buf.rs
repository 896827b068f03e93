// SPDX-License-Identifier: GPL-2.0

//! Memory in which payload arrived, and which a message keeps until it is read.
//!
//! It belongs to the transport: each kind of memory is a variant of [`RecvBuf`]. All code above
//! this file handles the kinds in the same way.

use crate::{
    proto::wire::Header,
    recv_pool::BufMut, //
};

/// Memory of a frame that has arrived. Dropping it returns the memory to its transport.
pub(crate) enum RecvBuf {
    /// A buffer of a pool, with a header and the payload behind it.
    Pooled(BufMut),
}

impl RecvBuf {
    /// Returns the first `len` bytes of payload.
    #[inline]
    pub(super) fn payload(&self, len: usize) -> &[u8] {
        match self {
            Self::Pooled(buf) => {
                let end = Header::LEN.saturating_add(len);
                buf.bytes().get(Header::LEN..end).unwrap_or(&[])
            }
        }
    }

    /// Returns the memory that is kept, in bytes.
    #[inline]
    pub(super) fn true_size(&self) -> usize {
        match self {
            Self::Pooled(buf) => buf.true_size(),
        }
    }
}
