// SPDX-License-Identifier: GPL-2.0

//! Header extensions: up to 16 bytes of `type, data` pairs, packed without gaps.
//!
//! An extension carries no length; each type has a fixed one. So a reader cannot skip an unknown
//! type. It stops there, at type 0, and at an extension that would exceed the space.

/// Size of the extension space of a header, in bytes.
pub(crate) const SPACE: usize = 16;

const VERSION: u8 = 1;
const RDMA: u8 = 2;
const RDMA_DEST: u8 = 3;
const RDMA_BYTES: u8 = 4;
const NPATHS: u8 = 5;
const GEN_NUM: u8 = 6;
const CAP_BITS: u8 = 7;
const SPORT_IDX: u8 = 8;
const CSUM: u8 = 9;

/// One extension, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// Protocol version. It is defined, but no implementation sends it.
    Version(u32),
    /// The sender has finished an RDMA operation on the receiver's memory region with this key.
    Rdma {
        /// Remote key.
        rkey: u32,
    },
    /// A memory region of the sender that the receiver may access.
    RdmaDest {
        /// Remote key.
        rkey: u32,
        /// Start of the data in the region, in bytes.
        offset: u32,
    },
    /// Size of an RDMA operation.
    RdmaBytes {
        /// Bytes moved.
        bytes: u32,
        /// 1 for a write, 2 for a read.
        flags: u8,
    },
    /// Number of paths that the sender can use to one peer.
    NPaths(u16),
    /// Random number that the sender chooses when it starts, or restarts its sequence numbers.
    GenNum(u32),
    /// Capabilities of UEK kernels; bit 0 is the heartbeat.
    CapBits(u32),
    /// The sender chooses the path by source port. The value itself is 0.
    SportIdx(u8),
    /// Payload checksum of UEK kernels.
    Csum {
        /// CRC of the payload.
        crc: u32,
        /// Nonzero if `crc` is in use.
        enabled: u8,
    },
}

/// Iterator over the extensions of a header.
#[derive(Clone, Debug)]
pub(crate) struct Extensions<'a> {
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Creates an iterator that starts at the first extension of `space`.
    #[inline]
    pub(crate) fn new(space: &'a [u8; SPACE]) -> Self {
        Extensions { rest: space }
    }
}

/// Makes an extension from the first `N` bytes of `data`. Also returns the bytes behind them.
#[inline]
fn map<const N: usize>(
    data: &[u8],
    make: impl FnOnce([u8; N]) -> Extension,
) -> Option<(Extension, &[u8])> {
    let (data, rest) = data.split_first_chunk::<N>()?;
    Some((make(*data), rest))
}

impl Iterator for Extensions<'_> {
    type Item = Extension;

    fn next(&mut self) -> Option<Extension> {
        let (kind, rest) = self.rest.split_first()?;
        let (extension, rest) = match *kind {
            VERSION => map(rest, |d| Extension::Version(u32::from_be_bytes(d)))?,
            RDMA => map(rest, |d| Extension::Rdma {
                rkey: u32::from_be_bytes(d),
            })?,
            RDMA_DEST => map(rest, |[a, b, c, d, e, f, g, h]| Extension::RdmaDest {
                rkey: u32::from_be_bytes([a, b, c, d]),
                offset: u32::from_be_bytes([e, f, g, h]),
            })?,
            RDMA_BYTES => map(rest, |[a, b, c, d, flags, _, _, _]| Extension::RdmaBytes {
                bytes: u32::from_be_bytes([a, b, c, d]),
                flags,
            })?,
            NPATHS => map(rest, |d| Extension::NPaths(u16::from_be_bytes(d)))?,
            GEN_NUM => map(rest, |d| Extension::GenNum(u32::from_be_bytes(d)))?,
            CAP_BITS => map(rest, |d| Extension::CapBits(u32::from_be_bytes(d)))?,
            SPORT_IDX => map(rest, |[d]| Extension::SportIdx(d))?,
            CSUM => map(rest, |[a, b, c, d, enabled, _, _, _]| Extension::Csum {
                crc: u32::from_be_bytes([a, b, c, d]),
                enabled,
            })?,
            _ => return None,
        };
        self.rest = rest;
        Some(extension)
    }
}

/// Bit in [`Extension::CapBits`]: the sender accepts packed frames, see [`super::packed`]. UEK
/// kernels count their bits from the other end, and send them in pings and pongs.
pub(crate) const CAP_PACKED: u32 = 1 << 31;

/// Bit in [`Extension::CapBits`] on TCP: the sender acknowledges messages that it has delivered,
/// see [`super::tcp_stream`].
pub(crate) const CAP_TCP_ACK: u32 = 1 << 30;

/// Returns the space with [`Extension::GenNum`] and the capabilities of this implementation. Any
/// path but the first one has its index there.
pub(crate) const fn introduction(generation: u32, path: u8) -> [u8; SPACE] {
    with_capabilities(generation, CAP_PACKED, path)
}

/// Returns the space like [`introduction`], for a connection over TCP.
pub(crate) const fn tcp_introduction(generation: u32, path: u8) -> [u8; SPACE] {
    with_capabilities(generation, CAP_TCP_ACK, path)
}

const fn with_capabilities(generation: u32, capabilities: u32, path: u8) -> [u8; SPACE] {
    let [a, b, c, d] = generation.to_be_bytes();
    let [e, f, g, h] = capabilities.to_be_bytes();
    let kind = if path == 0 { 0 } else { SPORT_IDX };
    [
        GEN_NUM, a, b, c, d, CAP_BITS, e, f, g, h, kind, path, 0, 0, 0, 0,
    ]
}

/// Error: the extension does not fit behind those that are already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// Writer that packs extensions into the space of a header.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExthdrWriter {
    space: [u8; SPACE],
    used: usize,
}

impl ExthdrWriter {
    /// Creates a writer with an empty space.
    #[inline]
    pub(crate) fn new() -> Self {
        ExthdrWriter::default()
    }

    /// Appends `extension`.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if the extension does not fit. The space is unchanged then.
    pub(crate) fn push(&mut self, extension: Extension) -> Result<(), NoSpace> {
        match extension {
            Extension::Version(version) => self.put(VERSION, &version.to_be_bytes()),
            Extension::Rdma { rkey } => self.put(RDMA, &rkey.to_be_bytes()),
            Extension::RdmaDest { rkey, offset } => {
                let data = (u64::from(rkey) << 32) | u64::from(offset);
                self.put(RDMA_DEST, &data.to_be_bytes())
            }
            Extension::RdmaBytes { bytes, flags } => {
                let data = (u64::from(bytes) << 32) | (u64::from(flags) << 24);
                self.put(RDMA_BYTES, &data.to_be_bytes())
            }
            Extension::NPaths(paths) => self.put(NPATHS, &paths.to_be_bytes()),
            Extension::GenNum(number) => self.put(GEN_NUM, &number.to_be_bytes()),
            Extension::CapBits(bits) => self.put(CAP_BITS, &bits.to_be_bytes()),
            Extension::SportIdx(index) => self.put(SPORT_IDX, &[index]),
            Extension::Csum { crc, enabled } => {
                let data = (u64::from(crc) << 32) | (u64::from(enabled) << 24);
                self.put(CSUM, &data.to_be_bytes())
            }
        }
    }

    fn put(&mut self, kind: u8, data: &[u8]) -> Result<(), NoSpace> {
        let at = self.used.checked_add(1).ok_or(NoSpace)?;
        let end = at.checked_add(data.len()).ok_or(NoSpace)?;
        let (first, rest) = self
            .space
            .get_mut(self.used..end)
            .and_then(<[u8]>::split_first_mut)
            .ok_or(NoSpace)?;
        *first = kind;
        rest.copy_from_slice(data);
        self.used = end;
        Ok(())
    }

    /// Returns the space. The unused part is filled with zeros.
    #[inline]
    pub(crate) fn finish(self) -> [u8; SPACE] {
        self.space
    }
}
