// SPDX-License-Identifier: GPL-2.0

//! Frames as transports pass them to a connection.
//!
//! Each transport keeps frames in memory of its own, which is a variant of [`RecvFrame`]. The
//! receive path handles all kinds in the same way.

use crate::{
    kapi::{
        net::Sock,
        rdma::DeviceId, //
    },
    proto::wire::Header,
    recv_pool::BufMut,
    socket::{
        RecvBuf,
        Socket, //
    }, //
};

/// A frame of a peer.
pub(crate) enum RecvFrame<'a> {
    /// In a receive buffer. A buffer that no message takes is left in `buf`, and can be posted
    /// again.
    Dma {
        buf: &'a mut Option<BufMut>,
        /// Length of header and payload in bytes.
        len: usize,
        /// The device that received it.
        device: DeviceId,
    },
    /// In a buffer to which it was copied from a stream. A buffer that no message takes is left in
    /// `buf`.
    Stream {
        buf: &'a mut Option<BufMut>,
        /// Length of header and payload in bytes.
        len: usize,
    },
    /// Header and payload from a stream, in memory that the transport needs again. The message
    /// copies them.
    Shared(&'a [u8]),
}

impl RecvFrame<'_> {
    /// Returns header and payload. `None` if the memory has less than the length of the frame.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Dma { buf, len, .. } | Self::Stream { buf, len } => {
                let bytes = buf.as_ref().map_or(&[][..], |buf| buf.bytes());
                bytes.get(..*len)
            }
            Self::Shared(bytes) => Some(bytes),
        }
    }

    /// Returns the payload. It is empty without a payload, or if the buffer has been taken.
    #[inline]
    pub(super) fn payload(&self) -> &[u8] {
        match self {
            Self::Dma { buf, len, .. } | Self::Stream { buf, len } => buf
                .as_ref()
                .and_then(|buf| buf.bytes().get(Header::LEN..*len))
                .unwrap_or(&[]),
            Self::Shared(bytes) => bytes.get(Header::LEN..).unwrap_or(&[]),
        }
    }

    /// Returns `true` if copying the payload is better than giving the memory to the reader.
    #[inline]
    pub(super) fn is_to_be_copied(&self) -> bool {
        match self {
            // The user is charged for the whole buffer, so it is kept only if a quarter of it is
            // used.
            Self::Dma { buf, .. } | Self::Stream { buf, .. } => {
                let capacity = buf.as_ref().map_or(0, BufMut::capacity);
                self.payload().len() < capacity / 4
            }
            Self::Shared(_) => true,
        }
    }

    /// Takes the memory, if it has not been taken before.
    #[inline]
    pub(super) fn into_buf(self) -> Option<RecvBuf> {
        match self {
            Self::Dma { buf, .. } | Self::Stream { buf, .. } => buf.take().map(RecvBuf::Pooled),
            Self::Shared(_) => None,
        }
    }

    /// Returns the origin of the frame.
    #[inline]
    pub(super) fn origin(&self) -> FrameOrigin {
        match self {
            Self::Dma { device, .. } => FrameOrigin::Rdma(*device),
            Self::Stream { .. } | Self::Shared(_) => FrameOrigin::Stream,
        }
    }
}

/// Origin of a frame, which gives a meaning to the keys of memory regions in it.
#[derive(Clone, Copy)]
pub(super) enum FrameOrigin {
    /// A peer that is connected with this device. Keys in its frames refer to the device.
    Rdma(DeviceId),
    /// A stream. Its frames have no keys.
    Stream,
}

impl FrameOrigin {
    /// Handles the use of a memory region of the receiving socket by the peer.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn use_region(self, sk: &Sock<Socket>, rkey: u32) {
        match self {
            Self::Rdma(device) => sk.memory.used(device, rkey),
            Self::Stream => {}
        }
    }
}
