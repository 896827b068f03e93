// SPDX-License-Identifier: GPL-2.0

//! Socket addresses as bytes and as values.
//!
//! C headers: [`include/uapi/linux/in.h`](srctree/include/uapi/linux/in.h),
//! [`include/uapi/linux/in6.h`](srctree/include/uapi/linux/in6.h)

use core::net::{Ipv4Addr, Ipv6Addr};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Length of `struct sockaddr_in`.
const SOCKADDR_IN_LEN: usize = 16;
/// Length of `struct sockaddr_in6`.
const SOCKADDR_IN6_LEN: usize = 28;

/// Why bytes are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SockAddrError {
    /// Shorter than its family says, or than a family.
    TooShort,
    /// Neither `AF_INET` nor `AF_INET6`.
    Family,
}

/// A socket address: `sockaddr_in` or `sockaddr_in6`, port in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SockAddr {
    V4 {
        addr: Ipv4Addr,
        port: u16,
    },
    V6 {
        addr: Ipv6Addr,
        port: u16,
        scope: u32,
    },
}

impl SockAddr {
    /// The most bytes that [`Self::encode`] gives.
    pub(crate) const MAX_LEN: usize = SOCKADDR_IN6_LEN;

    /// Reads the address that a program gave.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SockAddrError> {
        let (family, rest) = bytes.split_first_chunk().ok_or(SockAddrError::TooShort)?;
        let (port, rest) = match u16::from_ne_bytes(*family) {
            AF_INET | AF_INET6 => rest.split_first_chunk().ok_or(SockAddrError::TooShort)?,
            _ => return Err(SockAddrError::Family),
        };
        let port = u16::from_be_bytes(*port);
        if u16::from_ne_bytes(*family) == AF_INET {
            if bytes.len() < SOCKADDR_IN_LEN {
                return Err(SockAddrError::TooShort);
            }
            let addr: &[u8; 4] = rest.first_chunk().ok_or(SockAddrError::TooShort)?;
            return Ok(Self::V4 {
                addr: Ipv4Addr::from(*addr),
                port,
            });
        }
        let (_flowinfo, rest) = rest
            .split_first_chunk::<4>()
            .ok_or(SockAddrError::TooShort)?;
        let (addr, rest) = rest
            .split_first_chunk::<16>()
            .ok_or(SockAddrError::TooShort)?;
        let scope = rest.first_chunk::<4>().ok_or(SockAddrError::TooShort)?;
        Ok(Self::V6 {
            addr: Ipv6Addr::from(*addr),
            port,
            scope: u32::from_ne_bytes(*scope),
        })
    }

    /// The bytes of the C structure and how many of them count.
    pub(crate) fn encode(&self) -> ([u8; Self::MAX_LEN], usize) {
        let mut out = [0; Self::MAX_LEN];
        let mut put = |at: usize, bytes: &[u8]| {
            for (to, from) in out.iter_mut().skip(at).zip(bytes) {
                *to = *from;
            }
        };
        let len = match self {
            Self::V4 { addr, port } => {
                put(0, &AF_INET.to_ne_bytes());
                put(2, &port.to_be_bytes());
                put(4, &addr.octets());
                SOCKADDR_IN_LEN
            }
            Self::V6 { addr, port, scope } => {
                put(0, &AF_INET6.to_ne_bytes());
                put(2, &port.to_be_bytes());
                put(8, &addr.octets());
                put(24, &scope.to_ne_bytes());
                SOCKADDR_IN6_LEN
            }
        };
        (out, len)
    }
}

/// An IPv6 address, or an IPv4 one as a mapped address, as a number: it is passed, compared and hashed
/// in registers, where an [`Ipv6Addr`] is sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IpBits(u128);

impl IpBits {
    #[inline]
    pub(crate) fn new(addr: Ipv6Addr) -> Self {
        Self(addr.to_bits())
    }

    /// Its upper and its lower half.
    #[inline]
    pub(crate) fn halves(self) -> (u64, u64) {
        // CAST: the halves.
        ((self.0 >> 64) as u64, self.0 as u64)
    }
}
