// SPDX-License-Identifier: GPL-2.0

//! Wire format: the 48-byte header of every fragment, and the fragmentation of messages.
//!
//! All fields are big endian:
//!
//! | offset | length | field                                                  |
//! |--------|--------|--------------------------------------------------------|
//! | 0      | 8      | sequence of the message; 0 without a sequence          |
//! | 8      | 8      | ack, cumulative; 0 acknowledges nothing                |
//! | 16     | 4      | payload length of the whole message                    |
//! | 20     | 2      | source port                                            |
//! | 22     | 2      | destination port                                       |
//! | 24     | 1      | flags                                                  |
//! | 25     | 1      | flow control credits granted                           |
//! | 26     | 4      | padding, 0                                             |
//! | 30     | 2      | Internet checksum of the header, 0 where not computed  |
//! | 32     | 16     | extensions, see [`super::exthdr`]                      |
//!
//! The header is read and written as six 64-bit words, and the checksum is summed over the same
//! words. A one's complement sum can be computed in any byte order if the result is stored in that
//! order.

use super::exthdr;

/// Payload bytes of every fragment of a message except the last.
///
/// Mainline kernels know only the smallest size. UEK kernels agree on one of the three when they
/// connect, see [`super::ib_private`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FragmentSize {
    /// 4096 bytes.
    #[default]
    K4,
    /// 8192 bytes.
    K8,
    /// 16384 bytes.
    K16,
}

impl FragmentSize {
    /// Largest size.
    pub(crate) const LARGEST: FragmentSize = FragmentSize::K16;

    /// All sizes, the largest first.
    const ALL: [FragmentSize; 3] = [FragmentSize::K16, FragmentSize::K8, FragmentSize::K4];

    /// Returns the size in bytes.
    #[inline]
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            FragmentSize::K4 => 4096,
            FragmentSize::K8 => 8192,
            FragmentSize::K16 => 16384,
        }
    }

    /// Returns the next smaller size.
    pub(crate) const fn smaller(self) -> Option<FragmentSize> {
        match self {
            FragmentSize::K16 => Some(FragmentSize::K8),
            FragmentSize::K8 => Some(FragmentSize::K4),
            FragmentSize::K4 => None,
        }
    }

    /// Returns the largest size that is not above `bytes`, or the smallest if there is none.
    pub(crate) fn at_most(bytes: u32) -> FragmentSize {
        FragmentSize::ALL
            .into_iter()
            .find(|size| size.bytes() <= bytes)
            .unwrap_or_default()
    }

    /// Returns the smallest size that is not below `bytes`, or the largest if there is none.
    pub(crate) const fn at_least(bytes: u32) -> FragmentSize {
        match bytes {
            0..=4096 => FragmentSize::K4,
            4097..=8192 => FragmentSize::K8,
            _ => FragmentSize::K16,
        }
    }

    /// Returns the size of exactly `bytes` bytes.
    #[inline]
    pub(crate) fn exactly(bytes: usize) -> Option<FragmentSize> {
        FragmentSize::ALL
            .into_iter()
            .find(|size| usize::try_from(size.bytes()) == Ok(bytes))
    }
}

/// Longest message, in payload bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 20;

/// Payload bytes of a congestion update: one bit for each of 65,536 ports.
pub(crate) const CONG_MAP_BYTES: u32 = 8192;

/// Port of the node itself, which answers a message to it (a ping).
pub(crate) const PING_PORT: u16 = 0;

/// Source port of a capability probe, which is a ping. Sockets cannot be bound to it.
pub(crate) const PROBE_PORT: u16 = 1;

/// The flags byte of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// No flag.
    pub(crate) const NONE: Flags = Flags(0);
    /// The payload is the congestion map of the sender's address.
    pub(crate) const CONG_BITMAP: Flags = Flags(0x01);
    /// The receiver should acknowledge at once.
    pub(crate) const ACK_REQUIRED: Flags = Flags(0x02);
    /// The message was also sent on an earlier connection.
    pub(crate) const RETRANSMITTED: Flags = Flags(0x04);
    /// Heartbeat request of UEK kernels.
    pub(crate) const HB_PING: Flags = Flags(0x08);
    /// Heartbeat answer of UEK kernels.
    pub(crate) const HB_PONG: Flags = Flags(0x10);
    /// The extensions carry the size of an RDMA operation.
    #[cfg_attr(not(test), expect(dead_code, reason = "a name for what peers send"))]
    pub(crate) const EXTENSION: Flags = Flags(0x20);

    const HEARTBEAT: Flags = Flags(Flags::HB_PING.0 | Flags::HB_PONG.0);
    const KNOWN: Flags = Flags(0x3f);

    /// Returns the flags of a byte, unknown bits included.
    #[inline]
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "what a peer sends, in the host tests")
    )]
    pub(crate) const fn from_bits(bits: u8) -> Flags {
        Flags(bits)
    }

    /// Returns the byte as on the wire.
    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Returns `true` if all flags of `other` are set.
    #[inline]
    pub(crate) const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns `true` if any flag of `other` is set.
    #[inline]
    pub(crate) const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns these flags and those of `other`.
    #[inline]
    pub(crate) const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Rule that a received header breaks. The connection must be closed after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The checksum is present and wrong.
    Checksum,
    /// The message is longer than [`MAX_MESSAGE`]; the value is its length.
    TooLong(u32),
    /// A congestion update is not [`CONG_MAP_BYTES`] long; the value is its length.
    CongLength(u32),
    /// A congestion update carries an unknown flag; the value is all flags.
    CongFlags(u8),
}

/// A header, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Sequence number of the message. 0 in a pure acknowledgement and a congestion update.
    pub(crate) sequence: u64,
    /// Cumulative acknowledgement: every message up to it has arrived at the sender of the header.
    pub(crate) ack: u64,
    /// Payload bytes of the whole message, not of the fragment.
    pub(crate) len: u32,
    /// Source port.
    pub(crate) sport: u16,
    /// Destination port.
    pub(crate) dport: u16,
    pub(crate) flags: Flags,
    /// Flow control credits granted. Ignored unless this node has offered flow control.
    pub(crate) credit: u8,
    /// Extensions as on the wire, see [`super::exthdr`].
    pub(crate) exthdr: [u8; exthdr::SPACE],
}

impl Header {
    /// Size of a header on the wire, in bytes.
    pub(crate) const LEN: usize = 48;

    /// Returns the header of all fragments of a congestion update.
    ///
    /// `generation` is drawn when the sender creates the connection state. The first frame on every
    /// connection must be a congestion update. It shows the receiver if the sender has restarted
    /// its sequence numbers: see [`super::rx`]. `path` is not 0 only over TCP.
    pub(crate) fn congestion_update(ack: u64, generation: u32, path: u8) -> Header {
        Header {
            ack,
            len: CONG_MAP_BYTES,
            flags: Flags::CONG_BITMAP,
            exthdr: exthdr::introduction(generation, path),
            ..Header::default()
        }
    }

    /// Parses a header and checks all that can be checked without the payload.
    ///
    /// A checksum of 0 means that the sender computed none. Undefined flag bits are kept and
    /// otherwise ignored, as is a heartbeat: a newer peer must not lose its connection over them.
    /// They are an error only in a congestion update, because that replaces a whole map.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] names the broken rule.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; Header::LEN]) -> Result<Header, HeaderError> {
        let mut words = [0; 6];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut be = [0; 8];
            be.copy_from_slice(chunk);
            *word = u64::from_be_bytes(be);
        }
        let [sequence, ack, w2, w3, ext0, ext1] = words;
        if w3 & 0xffff != 0 && sum(&words) != 0xffff {
            return Err(HeaderError::Checksum);
        }

        let len = (w2 >> 32) as u32;
        let flags = Flags((w3 >> 56) as u8);
        if len > MAX_MESSAGE {
            return Err(HeaderError::TooLong(len));
        }
        if flags.contains(Flags::CONG_BITMAP) {
            if len != CONG_MAP_BYTES {
                return Err(HeaderError::CongLength(len));
            }
            if !Flags::KNOWN.contains(flags) {
                return Err(HeaderError::CongFlags(flags.bits()));
            }
        }

        Ok(Header {
            sequence,
            ack,
            len,
            sport: (w2 >> 16) as u16,
            dport: w2 as u16,
            flags,
            credit: (w3 >> 48) as u8,
            exthdr: ((u128::from(ext0) << 64) | u128::from(ext1)).to_be_bytes(),
        })
    }

    /// Writes the header with its checksum.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8; Header::LEN]) {
        let ext = u128::from_be_bytes(self.exthdr);
        let w2 =
            (u64::from(self.len) << 32) | (u64::from(self.sport) << 16) | u64::from(self.dport);
        let w3 = (u64::from(self.flags.bits()) << 56) | (u64::from(self.credit) << 48);
        let mut words = [
            self.sequence,
            self.ack,
            w2,
            w3,
            (ext >> 64) as u64,
            ext as u64,
        ];
        let checksum = !sum(&words);
        let [_, _, _, w3, ..] = &mut words;
        *w3 |= u64::from(checksum);
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Returns `true` if a frame with this header and `payload_len` payload bytes is a pure
    /// acknowledgement.
    ///
    /// No socket sends from port 0 to port 0, which distinguishes these frames. A UEK heartbeat
    /// uses the same ports, but has a sequence number and asks for an acknowledgement.
    #[inline]
    pub(crate) fn is_pure_ack(&self, payload_len: usize) -> bool {
        self.sport == 0
            && self.dport == PING_PORT
            && self.len == 0
            && payload_len == 0
            && !self.flags.intersects(Flags::HEARTBEAT)
    }
}

/// Returns the one's complement sum of the 16-bit words of a header.
#[inline]
fn sum(words: &[u64; 6]) -> u16 {
    let mut sum = 0u64;
    for word in words {
        let (low, carry) = sum.overflowing_add(*word);
        // A sum that carried is below the maximum, so this does not wrap.
        sum = low.wrapping_add(u64::from(carry));
    }
    sum = (sum >> 32).wrapping_add(sum & 0xffff_ffff);
    sum = (sum >> 32).wrapping_add(sum & 0xffff_ffff);
    sum = (sum >> 16).wrapping_add(sum & 0xffff);
    sum = (sum >> 16).wrapping_add(sum & 0xffff);
    sum as u16
}

/// Piece of a message that travels in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Offset of the piece in the message, in bytes.
    pub(crate) offset: u32,
    /// Payload bytes of the piece; 0 only in an empty message.
    pub(crate) len: u32,
    /// The message ends with this piece.
    pub(crate) last: bool,
}

/// Returns the number of fragments of a message of `len` bytes. An empty message has one.
#[inline]
pub(crate) const fn fragments(len: u32, size: FragmentSize) -> u32 {
    if len == 0 {
        1
    } else {
        len.div_ceil(size.bytes())
    }
}

/// Returns fragment `index`, counted from 0, of a message of `len` bytes. `None` behind the last
/// one.
#[inline]
pub(crate) fn fragment(len: u32, index: u32, size: FragmentSize) -> Option<Fragment> {
    if index >= fragments(len, size) {
        return None;
    }
    let offset = index.checked_mul(size.bytes())?;
    let rest = len.checked_sub(offset)?;
    Some(Fragment {
        offset,
        len: rest.min(size.bytes()),
        last: rest <= size.bytes(),
    })
}
