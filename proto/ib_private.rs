// SPDX-License-Identifier: GPL-2.0

//! Private data of RDMA CM requests and replies, and the version negotiation in it.
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
//! The CM pads private data with zeros up to its own maximum. "No private data" therefore arrives
//! as zeros, and is recognised by the major version 0.

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

/// Mask of the supported minors of major version 4.
pub(crate) const MINOR_MASK: u16 = 0x0003;

/// Consumer data of a rejection by C RDS: incompatible versions, or simultaneous connects. The two
/// cannot be distinguished.
///
/// The value is a C `int` in the byte order of the rejecting host, and negative errnos also occur.
/// So it can be logged, but no decision should depend on it.
pub(crate) const REJECT_INCOMPATIBLE_OR_RACE: u32 = 1;

/// Suffix for rejections that are not caused by the version. C RDS reads only the first four bytes.
const NOT_THE_VERSION: [u8; 4] = *b"busy";

/// Consumer data of [`Rejection::Other`]. Its first four bytes are that of [`Rejection::Version`].
const REJECTION: [u8; 8] = {
    let [a, b, c, d] = REJECT_INCOMPATIBLE_OR_RACE.to_ne_bytes();
    let [e, f, g, h] = NOT_THE_VERSION;
    [a, b, c, d, e, f, g, h]
};

/// Reason for the rejection of a request, as reported to the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The version, or from a peer that does not run this module any reason.
    Version,
    /// Another reason: a request with another version would also be rejected.
    Other,
    /// No data. Peers from before the type of service reject other versions in this way. But so
    /// does the kernel of any peer whose `rdma_accept()` has failed, for example for lack of
    /// memory.
    Unexplained,
}

impl Rejection {
    /// Returns the consumer data.
    pub(crate) const fn data(self) -> &'static [u8] {
        match self {
            Self::Version => REJECTION.split_at(4).0,
            Self::Other => &REJECTION,
            Self::Unexplained => &[],
        }
    }

    /// Parses consumer data, which may be padded with zeros.
    pub(crate) fn parse(data: &[u8]) -> Self {
        if data.iter().all(|byte| *byte == 0) {
            return Self::Unexplained;
        }
        match data.split_first_chunk::<4>() {
            Some((_, more)) if more.starts_with(&NOT_THE_VERSION) => Self::Other,
            _ => Self::Version,
        }
    }
}

/// Refusals of a peer since the connection was up, as far as they concern the next proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// Position in a cycle of attempts. The last attempt of the cycle proposes the old version.
    position: u8,
    /// Number of rejections without data that were ignored, because the peer ran this module.
    ignored: u8,
}

impl Refusals {
    /// Position of the attempt that proposes 3.1: after two rejections with data, or eight without.
    const LAST: u8 = 8;

    /// Number of rejections without data that are ignored, if the peer ran this module. With the
    /// longest backoff they take about two minutes. After that another peer may have the address,
    /// and may reject 4.1 in this way.
    const MAX_IGNORED: u8 = 120;

    /// Returns the state with this [`Self::number`].
    pub(crate) const fn from_number(number: u32) -> Self {
        let [position, ignored, _, _] = number.to_le_bytes();
        Self { position, ignored }
    }

    /// Returns the state as a number. 0 if no refusal counts.
    pub(crate) const fn number(self) -> u32 {
        u32::from_le_bytes([self.position, self.ignored, 0, 0])
    }

    /// Returns the position in the cycle of attempts.
    pub(crate) const fn position(self) -> u8 {
        self.position
    }

    /// Returns the state after a rejection by the peer itself. `ran_rds_rust` is `true` if the peer
    /// ran this module when the connection was up for the last time.
    #[must_use]
    pub(crate) const fn after(self, why: Rejection, ran_rds_rust: bool) -> Self {
        const HALF: u8 = Refusals::LAST / 2;
        let position = match (why, self.position) {
            (Rejection::Other, position) => position,
            (_, Self::LAST..) => 0,
            (Rejection::Version, 0..HALF) => HALF,
            (Rejection::Version, _) => Self::LAST,
            (Rejection::Unexplained, _) if ran_rds_rust && self.ignored < Self::MAX_IGNORED => {
                return Self {
                    ignored: self.ignored.saturating_add(1),
                    ..self
                };
            }
            (Rejection::Unexplained, position) => position.saturating_add(1),
        };
        Self { position, ..self }
    }
}

/// An IPv6 address, or an IPv4 address in its mapped form `::ffff:a.b.c.d`. Network byte order.
///
/// Addresses are ordered by their bytes. The order decides which of two nodes prevails that connect
/// to each other at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Addr(pub(crate) [u8; 16]);

impl Addr {
    /// Returns the mapped form of an IPv4 address.
    #[inline]
    pub(crate) const fn from_v4(addr: [u8; 4]) -> Addr {
        let [a, b, c, d] = addr;
        Addr([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// Returns the IPv4 address, unless this is an IPv6 address.
    #[inline]
    pub(crate) const fn to_v4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }
}

/// GID that a request over RoCE names for one of its ends. Network byte order.
///
/// The GID is the IP address of that end. Before Linux 3.14 a GID of RoCE v1 contained the hardware
/// address. Such GIDs are not accepted, because with one any host on the same Ethernet could claim
/// any IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoceGid(pub(crate) [u8; 16]);

impl RoceGid {
    /// Returns `true` if the end may claim to have `addr`.
    pub(crate) fn may_have(self, addr: Addr) -> bool {
        Addr(self.0) == addr
    }
}

/// Protocol version that this implementation supports. Versions differ in the private data, not in
/// the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 3.1, proposed by mainline kernels.
    V3_1,
    /// 4.0.
    V4_0,
    /// 4.1, proposed by UEK kernels: the first with a type of service and with fragments larger
    /// than 4096 bytes.
    V4_1,
}

impl Version {
    /// Returns the version to propose.
    ///
    /// A peer that only supports 3.1 refuses 4.1. C RDS also refuses while it connects itself, with
    /// the same consumer data. So 3.1 is proposed after two refusals, for one attempt: if it was
    /// not necessary, it costs the larger fragments. A refusal without data says less, so more of
    /// them are needed. A peer that means the version repeats them at once, and the first backoffs
    /// are short. A peer that ran this module knows 4.1, so the first ones are ignored.
    ///
    /// It is never proposed with a type of service. A peer that only supports 3.1 would take the
    /// request for one without, and drop its connection without a type of service.
    pub(crate) const fn proposed(tos: u8, refusals: Refusals) -> Version {
        match (tos, refusals.position()) {
            (0, Refusals::LAST) => Version::V3_1,
            _ => Version::V4_1,
        }
    }

    /// Returns the largest fragments on which both sides can agree. In 3.1 and 4.0 UEK kernels
    /// announce a size, and may use 4096 bytes all the same.
    pub(crate) const fn max_fragment(self) -> FragmentSize {
        match self {
            Version::V3_1 | Version::V4_0 => FragmentSize::K4,
            Version::V4_1 => FragmentSize::LARGEST,
        }
    }

    pub(crate) const fn major(self) -> u8 {
        match self {
            Version::V3_1 => 3,
            Version::V4_0 | Version::V4_1 => 4,
        }
    }

    pub(crate) const fn minor(self) -> u8 {
        match self {
            Version::V3_1 | Version::V4_1 => 1,
            Version::V4_0 => 0,
        }
    }
}

/// Reason why private data cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrivateError {
    /// Fewer bytes than the format has. The value is their number.
    Short(usize),
    /// The major version is 0: the peer sent no private data, or predates protocol versions.
    NoVersion,
}

/// Reason to reject a request, or not to accept a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    /// There is no common version.
    Version {
        /// The peer's major.
        major: u8,
        /// The peer's minor.
        minor: u8,
    },
    /// The reply has other addresses than the request.
    Addresses,
    /// The reply asks for larger fragments than the request allows. The value is their size in
    /// bytes.
    Fragment(u16),
    /// The reply has another type of service than the request. A peer without types of service
    /// would merge all connections of an address pair.
    Tos(u8),
}

/// Result of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) version: Version,
    /// Largest fragments that may be sent.
    pub(crate) fragment: FragmentSize,
}

/// Private data, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Private {
    /// Address that the sender claims to have. The caller compares it with the path of the CM id.
    pub(crate) saddr: Addr,
    /// Address that the sender wants to reach.
    pub(crate) daddr: Addr,
    /// Protocol major.
    pub(crate) major: u8,
    /// Protocol minor.
    pub(crate) minor: u8,
    /// Mask of the minors that the sender supports.
    pub(crate) minor_mask: u16,
    /// Type of service.
    pub(crate) tos: u8,
    /// Fragment size in bytes that the sender proposes. 0 for 4096.
    pub(crate) frag_size: u16,
    /// Cumulative acknowledgement, as in [`super::wire::Header::ack`]. C RDS sends 0.
    pub(crate) ack_seq: u64,
    /// Initial flow control credits. 0 without flow control.
    pub(crate) credit: u32,
}

impl Private {
    /// Creates the private data of a request or a reply, which offers `credit` receives.
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

    /// Returns the fragment size that the sender proposes, or agrees to.
    pub(crate) fn fragment(&self) -> FragmentSize {
        FragmentSize::at_most(self.frag_size.into())
    }

    /// Parses the private data of an IPv4 connection. Trailing bytes are ignored.
    ///
    /// # Errors
    ///
    /// - [`PrivateError`]
    pub(crate) fn parse_v4(data: &[u8]) -> Result<Private, PrivateError> {
        let short = PrivateError::Short(data.len());
        let (saddr, rest) = data.split_first_chunk().ok_or(short)?;
        let (daddr, rest) = rest.split_first_chunk().ok_or(short)?;
        let common = rest.first_chunk().ok_or(short)?;
        Private::parse(Addr::from_v4(*saddr), Addr::from_v4(*daddr), common)
    }

    /// Parses the private data of an IPv6 connection. Trailing bytes are ignored.
    ///
    /// # Errors
    ///
    /// - [`PrivateError`]
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

    /// Returns the private data for an IPv4 connection. `None` if an address is not an IPv4
    /// address.
    pub(crate) fn emit_v4(&self) -> Option<[u8; LEN_V4]> {
        let mut out = [0; LEN_V4];
        out[..4].copy_from_slice(&self.saddr.to_v4()?);
        out[4..8].copy_from_slice(&self.daddr.to_v4()?);
        out[8..].copy_from_slice(&self.emit());
        Some(out)
    }

    /// Returns the private data for an IPv6 connection.
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

/// Negotiates on the passive side: returns the version and fragment size for the reply to
/// `request`. `limit` is the largest acceptable fragment size.
///
/// # Errors
///
/// - [`Reject::Version`] if there is no common version.
pub(crate) fn negotiate(request: &Private, limit: FragmentSize) -> Result<Agreed, Reject> {
    let common = request.minor_mask & MINOR_MASK;
    let version = match (request.major, request.minor) {
        // Also with a type of service: mainline kernels request it so.
        (3, 1) => Version::V3_1,
        (4, _) if common & 0x2 != 0 => Version::V4_1,
        (4, _) if common & 0x1 != 0 => Version::V4_0,
        (major, minor) => return Err(Reject::Version { major, minor }),
    };
    let fragment = request.fragment().min(limit).min(version.max_fragment());
    Ok(Agreed { version, fragment })
}

/// Checks on the active side that the reply `reply` to the local request `request` is acceptable.
///
/// # Errors
///
/// - [`Reject`]: the caller must drop the connection.
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
