// SPDX-License-Identifier: GPL-2.0

//! The private data of RDMA CM requests and replies, and the version negotiation in it.
//!
//! All fields are big endian. An IPv4 connection uses 32 bytes, an IPv6 connection 56:
//!
//! | IPv4 | IPv6 | length | field                                                 |
//! |------|------|--------|-------------------------------------------------------|
//! | 0    | 0    | 4, 16  | address of the sender                                 |
//! | 4    | 16   | 4, 16  | address of the receiver                               |
//! | 8    | 32   | 1      | protocol major                                        |
//! | 9    | 33   | 1      | protocol minor                                        |
//! | 10   | 34   | 2      | mask of the minors supported                          |
//! | 12   | 36   | 1      | type of service                                       |
//! | 13   | 37   | 1      | reserved, 0                                           |
//! | 14   | 38   | 2      | fragment size of UEK kernels in bytes, 0 for 4096     |
//! | 16   | 40   | 8      | acknowledged sequence                                 |
//! | 24   | 48   | 4      | initial credits, 0 without flow control               |
//! | 28   | 52   | 4      | padding, 0                                            |
//!
//! The CM pads what it delivers with zeros up to its own maximum. "No private data" therefore
//! arrives as zeros, and is told apart by the major version.

use super::wire::FragmentSize;

/// Port of the IPv4 listener, in the TCP port space of the RDMA CM.
pub(crate) const PORT_V4: u16 = 18634;

/// Port of the IPv6 listener, in the TCP port space of the RDMA CM.
pub(crate) const PORT_V6: u16 = 16385;

/// Bytes of the private data of an IPv4 connection.
pub(crate) const LEN_V4: usize = 32;

/// Bytes of the private data of an IPv6 connection.
pub(crate) const LEN_V6: usize = 56;

/// Bytes from the protocol major on, the same for both families.
const LEN_COMMON: usize = 24;

/// The minors of major version 4 that are supported, as a mask.
pub(crate) const MINOR_MASK: u16 = 0x0003;

/// What a rejection of C RDS carries as its consumer data: incompatible versions, or simultaneous
/// connects. The two cannot be told apart.
///
/// The value is a C `int` in the byte order of the rejecting host, and negative errnos are seen
/// there as well: it can be logged, but no decision should hang on it.
pub(crate) const REJECT_INCOMPATIBLE_OR_RACE: u32 = 1;

/// What follows that if the version has nothing to do with it. C RDS reads the first four bytes alone.
const NOT_THE_VERSION: [u8; 4] = *b"busy";

/// The consumer data of [`Rejection::Other`]; its first four bytes are that of [`Rejection::Version`].
const REJECTION: [u8; 8] = {
    let [a, b, c, d] = REJECT_INCOMPATIBLE_OR_RACE.to_ne_bytes();
    let [e, f, g, h] = NOT_THE_VERSION;
    [a, b, c, d, e, f, g, h]
};

/// Why a request is rejected, as its sender hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// For its version; or, from a peer that is not like us, for anything.
    Version,
    /// For something else: another version would be rejected, too.
    Other,
}

impl Rejection {
    /// The consumer data.
    pub(crate) const fn data(self) -> &'static [u8] {
        match self {
            Self::Version => REJECTION.split_at(4).0,
            Self::Other => &REJECTION,
        }
    }

    /// Reads the consumer data, which may be padded.
    pub(crate) fn parse(data: &[u8]) -> Self {
        match data.split_first_chunk::<4>() {
            Some((_, more)) if more.starts_with(&NOT_THE_VERSION) => Self::Other,
            _ => Self::Version,
        }
    }
}

/// An IPv6 address, or an IPv4 address in its mapped form `::ffff:a.b.c.d`. Bytes as on the wire.
///
/// The order is that of the bytes; it decides which of two nodes that connect to each other at
/// the same time prevails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Addr(pub(crate) [u8; 16]);

impl Addr {
    /// The mapped form of an IPv4 address.
    #[inline]
    pub(crate) const fn from_v4(addr: [u8; 4]) -> Addr {
        let [a, b, c, d] = addr;
        Addr([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The IPv4 address, unless this is an IPv6 address.
    #[inline]
    pub(crate) const fn to_v4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }
}

/// The GID that a request over RoCE names for one of its ends: 16 bytes as on the wire.
///
/// It is the IP address of that end. Before Linux 3.14 one of RoCE v1 was made of the hardware address, but from such a
/// GID anyone on the same Ethernet could claim any IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoceGid(pub(crate) [u8; 16]);

impl RoceGid {
    /// Whether the end may say that it has `addr`.
    pub(crate) fn may_have(self, addr: Addr) -> bool {
        Addr(self.0) == addr
    }
}

/// A protocol version that this implementation speaks. They differ in what the private data can
/// say, not in what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 3.1, what mainline kernels propose.
    V3_1,
    /// 4.0.
    V4_0,
    /// 4.1, what UEK kernels propose: the first with a type of service, and with fragments of
    /// another size than 4096.
    V4_1,
}

impl Version {
    /// The version to propose, when the peer itself has refused the last `refused` requests, and did
    /// not say that this was for something else.
    ///
    /// A peer that knows 3.1 only refuses 4.1. C RDS refuses while it connects itself, and
    /// says the same. So 3.1 comes after two refusals, and for one attempt: where it was not
    /// needed, it costs the larger fragments. It never comes for a type of service: a peer that
    /// knows 3.1 only would take the request for one without, and drop that connection for it.
    pub(crate) const fn proposed(tos: u8, refused: u32) -> Version {
        match (tos, refused % 3) {
            (0, 2) => Version::V3_1,
            _ => Version::V4_1,
        }
    }

    /// The largest fragments that both sides understand each other about. In 3.1 and 4.0 UEK
    /// kernels announce a size, and may then use 4096 all the same.
    pub(crate) const fn max_fragment(self) -> FragmentSize {
        match self {
            Version::V3_1 | Version::V4_0 => FragmentSize::K4,
            Version::V4_1 => FragmentSize::LARGEST,
        }
    }

    /// The major number.
    pub(crate) const fn major(self) -> u8 {
        match self {
            Version::V3_1 => 3,
            Version::V4_0 | Version::V4_1 => 4,
        }
    }

    /// The minor number.
    pub(crate) const fn minor(self) -> u8 {
        match self {
            Version::V3_1 | Version::V4_1 => 1,
            Version::V4_0 => 0,
        }
    }
}

/// Why private data cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrivateError {
    /// There are fewer bytes than the format has; the value is how many there are.
    Short(usize),
    /// The major version is 0: the peer sent no private data, or is older than the versions.
    NoVersion,
}

/// Why a request is to be rejected, or a reply not to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    /// There is no common version.
    Version {
        /// The peer's major.
        major: u8,
        /// The peer's minor.
        minor: u8,
    },
    /// The reply is for other addresses than the request.
    Addresses,
    /// The reply asks for larger fragments, in bytes, than the request allows.
    Fragment(u16),
    /// The reply is for another type of service than the request, as of a peer that has none and
    /// would put all connections of an address pair into one.
    Tos(u8),
}

/// What two sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The version.
    pub(crate) version: Version,
    /// The largest fragments that may be sent.
    pub(crate) fragment: FragmentSize,
}

/// Private data, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Private {
    /// The address that the sender claims to have. To be compared with the path of the CM id.
    pub(crate) saddr: Addr,
    /// The address that the sender means to reach.
    pub(crate) daddr: Addr,
    /// Protocol major.
    pub(crate) major: u8,
    /// Protocol minor.
    pub(crate) minor: u8,
    /// Mask of the minors that the sender supports.
    pub(crate) minor_mask: u16,
    /// Type of service.
    pub(crate) tos: u8,
    /// Fragment size in bytes that the sender proposes; 0 for 4096.
    pub(crate) frag_size: u16,
    /// Cumulative acknowledgement, by the rules of [`super::wire::Header::ack`]. C sends 0.
    pub(crate) ack_seq: u64,
    /// Initial flow control credits; 0 without flow control.
    pub(crate) credit: u32,
}

impl Private {
    /// What to send in a request or a reply, with `credit` receives offered.
    pub(crate) fn new(
        saddr: Addr,
        daddr: Addr,
        tos: u8,
        version: Version,
        fragment: FragmentSize,
        credit: u32,
    ) -> Private {
        Private {
            frag_size: match fragment.min(version.max_fragment()) {
                FragmentSize::K4 => 0,
                // CAST: the sizes are small.
                size => size.bytes() as u16,
            },
            saddr,
            daddr,
            major: version.major(),
            minor: version.minor(),
            minor_mask: MINOR_MASK,
            tos,
            credit,
            ..Private::default()
        }
    }

    /// The fragments that the sender proposes, or agrees to.
    pub(crate) fn fragment(&self) -> FragmentSize {
        FragmentSize::at_most(self.frag_size.into())
    }

    /// Reads the private data of an IPv4 connection; bytes behind it are ignored.
    ///
    /// # Errors
    ///
    /// [`PrivateError`].
    pub(crate) fn parse_v4(data: &[u8]) -> Result<Private, PrivateError> {
        let short = PrivateError::Short(data.len());
        let (saddr, rest) = data.split_first_chunk().ok_or(short)?;
        let (daddr, rest) = rest.split_first_chunk().ok_or(short)?;
        let common = rest.first_chunk().ok_or(short)?;
        Private::parse(Addr::from_v4(*saddr), Addr::from_v4(*daddr), common)
    }

    /// Reads the private data of an IPv6 connection; bytes behind it are ignored.
    ///
    /// # Errors
    ///
    /// [`PrivateError`].
    pub(crate) fn parse_v6(data: &[u8]) -> Result<Private, PrivateError> {
        let short = PrivateError::Short(data.len());
        let (saddr, rest) = data.split_first_chunk().ok_or(short)?;
        let (daddr, rest) = rest.split_first_chunk().ok_or(short)?;
        let common = rest.first_chunk().ok_or(short)?;
        Private::parse(Addr(*saddr), Addr(*daddr), common)
    }

    fn parse(saddr: Addr, daddr: Addr, common: &[u8; LEN_COMMON]) -> Result<Private, PrivateError> {
        #[rustfmt::skip]
        let [
            major, minor, m0, m1, tos, _, f0, f1,
            a0, a1, a2, a3, a4, a5, a6, a7,
            c0, c1, c2, c3, _, _, _, _,
        ] = *common;
        if major == 0 {
            return Err(PrivateError::NoVersion);
        }
        Ok(Private {
            saddr,
            daddr,
            major,
            minor,
            minor_mask: u16::from_be_bytes([m0, m1]),
            tos,
            frag_size: u16::from_be_bytes([f0, f1]),
            ack_seq: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            credit: u32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    /// The private data for an IPv4 connection. `None` if an address is not an IPv4 address.
    pub(crate) fn emit_v4(&self) -> Option<[u8; LEN_V4]> {
        let mut out = [0; LEN_V4];
        out[..4].copy_from_slice(&self.saddr.to_v4()?);
        out[4..8].copy_from_slice(&self.daddr.to_v4()?);
        out[8..].copy_from_slice(&self.emit());
        Some(out)
    }

    /// The private data for an IPv6 connection.
    pub(crate) fn emit_v6(&self) -> [u8; LEN_V6] {
        let mut out = [0; LEN_V6];
        out[..16].copy_from_slice(&self.saddr.0);
        out[16..32].copy_from_slice(&self.daddr.0);
        out[32..].copy_from_slice(&self.emit());
        out
    }

    fn emit(&self) -> [u8; LEN_COMMON] {
        let mut out = [0; LEN_COMMON];
        out[0] = self.major;
        out[1] = self.minor;
        out[2..4].copy_from_slice(&self.minor_mask.to_be_bytes());
        out[4] = self.tos;
        out[6..8].copy_from_slice(&self.frag_size.to_be_bytes());
        out[8..16].copy_from_slice(&self.ack_seq.to_be_bytes());
        out[16..20].copy_from_slice(&self.credit.to_be_bytes());
        out
    }
}

/// The passive side: what to answer `request` with, and fragments of up to `limit`.
///
/// # Errors
///
/// [`Reject::Version`] if there is no common one.
pub(crate) fn negotiate(request: &Private, limit: FragmentSize) -> Result<Agreed, Reject> {
    let common = request.minor_mask & MINOR_MASK;
    let version = match (request.major, request.minor) {
        // Also for a type of service: mainline kernels ask so.
        (3, 1) => Version::V3_1,
        (4, _) if common & 0x2 != 0 => Version::V4_1,
        (4, _) if common & 0x1 != 0 => Version::V4_0,
        (major, minor) => return Err(Reject::Version { major, minor }),
    };
    let fragment = request.fragment().min(limit).min(version.max_fragment());
    Ok(Agreed { version, fragment })
}

/// The active side: whether the answer `reply` to our `request` is one to go on with.
///
/// # Errors
///
/// [`Reject`] says what is wrong with it; the connection has to go.
pub(crate) fn check_reply(request: &Private, reply: &Private) -> Result<Agreed, Reject> {
    if reply.saddr != request.daddr || reply.daddr != request.saddr {
        return Err(Reject::Addresses);
    }
    if reply.tos != request.tos {
        return Err(Reject::Tos(reply.tos));
    }
    if reply.fragment() > request.fragment() {
        return Err(Reject::Fragment(reply.frag_size));
    }
    let version = match (reply.major, reply.minor) {
        (3, 1) => Version::V3_1,
        (4, 0) => Version::V4_0,
        (4, 1) => Version::V4_1,
        (major, minor) => return Err(Reject::Version { major, minor }),
    };
    let fragment = reply.fragment().min(version.max_fragment());
    Ok(Agreed { version, fragment })
}
