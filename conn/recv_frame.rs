// SPDX-License-Identifier: GPL-2.0

//! Frames as transports pass them to a connection.
//!
//! Each transport keeps frames in memory of its own, which is a variant of [`RecvFrame`]. The
//! receive path handles all kinds in the same way.

use crate::{
    kapi::{
        net::{
            packet::PacketPart,
            Sock, //
        },
        rdma::DeviceId, //
    },
    proto::{
        tcp_stream::HeaderBytes,
        wire::{
            FragmentSize,
            Header, //
        }, //
    },
    recv_pool::BufMut,
    socket::{
        RecvBuf,
        Socket, //
    }, //
};

/// Least bytes of payload that stay in their packet.
pub(crate) const LEAST_IN_PACKET: u32 = 4096;

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
    /// In a packet of a stream, which a message may take.
    Packet {
        header: &'a HeaderBytes,
        part: &'a mut Option<PacketPart>,
    },
    /// Header and payload from a stream, in memory that the transport needs again. The message
    /// copies them.
    Shared(&'a [u8]),
}

impl RecvFrame<'_> {
    /// Returns header and payload. `None` if the memory has less than the length of the frame, or
    /// the payload is in a packet.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Dma { buf, len, .. } | Self::Stream { buf, len } => {
                let bytes = buf.as_ref().map_or(&[][..], |buf| buf.bytes());
                bytes.get(..*len)
            }
            Self::Packet { .. } => None,
            Self::Shared(bytes) => Some(bytes),
        }
    }

    /// Returns the payload. It is empty without a payload, or if the buffer has been taken. `None`
    /// if it is in a packet.
    #[inline]
    pub(super) fn payload(&self) -> Option<&[u8]> {
        match self {
            Self::Dma { buf, len, .. } | Self::Stream { buf, len } => Some(
                buf.as_ref()
                    .and_then(|buf| buf.bytes().get(Header::LEN..*len))
                    .unwrap_or(&[]),
            ),
            Self::Packet { .. } => None,
            Self::Shared(bytes) => Some(bytes.get(Header::LEN..).unwrap_or(&[])),
        }
    }

    /// Returns the number of bytes of payload.
    #[inline]
    pub(super) fn payload_len(&self) -> usize {
        match self {
            Self::Packet { part, .. } => part.as_ref().map_or(0, PacketPart::len),
            frame => frame.payload().map_or(0, <[u8]>::len),
        }
    }

    /// Returns the payload of each buffer except the last, and the most fragments, of a message of
    /// `len` bytes that begins with this frame.
    #[inline]
    pub(super) fn division(&self, len: u32) -> (u32, usize) {
        // The payload is short. It is not empty either, because then the message would end with
        // it. The compiler does not know that, and would add a panic for a division by zero.
        let own = || u32::try_from(self.payload_len()).unwrap_or(u32::MAX).max(1);
        match self {
            Self::Dma { .. } | Self::Shared(_) => {
                let size = own();
                (size, len.div_ceil(size) as usize)
            }
            Self::Stream { .. } => (own(), len.div_ceil(LEAST_IN_PACKET) as usize),
            Self::Packet { .. } => {
                let size = FragmentSize::K8.bytes();
                (size, len.div_ceil(LEAST_IN_PACKET) as usize)
            }
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
                self.payload_len() < capacity / 4
            }
            Self::Packet { .. } => false,
            Self::Shared(_) => true,
        }
    }

    /// Takes the memory, if it has not been taken before.
    #[inline]
    pub(super) fn into_buf(self) -> Option<RecvBuf> {
        match self {
            Self::Dma { buf, .. } | Self::Stream { buf, .. } => buf.take().map(RecvBuf::Pooled),
            Self::Packet { part, .. } => part.take().map(RecvBuf::Packet),
            Self::Shared(_) => None,
        }
    }

    /// Returns the origin of the frame.
    #[inline]
    pub(super) fn origin(&self) -> FrameOrigin {
        match self {
            Self::Dma { device, .. } => FrameOrigin::Rdma(*device),
            Self::Stream { .. } | Self::Packet { .. } | Self::Shared(_) => FrameOrigin::Stream,
        }
    }
}

/// A message, or a fragment of one.
pub(super) enum ReceivedPiece<'a> {
    /// The payload of a frame, whose memory the message may take.
    Frame(RecvFrame<'a>),
    /// Payload of a whole message in a packed frame.
    Shared(&'a [u8]),
}

impl ReceivedPiece<'_> {
    /// Returns the payload. `None` if it is in a packet.
    #[inline]
    pub(super) fn payload(&self) -> Option<&[u8]> {
        match self {
            Self::Frame(frame) => frame.payload(),
            Self::Shared(payload) => Some(payload),
        }
    }

    /// Returns the number of bytes of payload.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.payload_len(),
            Self::Shared(payload) => payload.len(),
        }
    }

    /// Returns `true` if copying the payload is better than giving its memory to the reader.
    #[inline]
    pub(super) fn is_to_be_copied(&self) -> bool {
        match self {
            Self::Frame(frame) => frame.is_to_be_copied(),
            Self::Shared(_) => true,
        }
    }

    /// Returns the division of a message of `len` bytes that begins with this piece. `None` if the
    /// piece is a whole message.
    #[inline]
    pub(super) fn division(&self, len: u32) -> Option<(u32, usize)> {
        match self {
            Self::Frame(frame) => Some(frame.division(len)),
            Self::Shared(_) => None,
        }
    }

    /// Takes the memory, if it is not shared.
    #[inline]
    pub(super) fn into_buf(self) -> Option<RecvBuf> {
        match self {
            Self::Frame(frame) => frame.into_buf(),
            Self::Shared(_) => None,
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
