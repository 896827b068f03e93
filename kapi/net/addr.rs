// SPDX-License-Identifier: GPL-2.0

//! Conversion of socket addresses between the bytes of the C structures and values.
//!
//! C headers: [`include/uapi/linux/in.h`](srctree/include/uapi/linux/in.h),
//! [`include/uapi/linux/in6.h`](srctree/include/uapi/linux/in6.h)

use crate::bindings::{
    self,
    sockaddr_in,
    sockaddr_in6, //
};
use core::{
    mem::offset_of,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

// CAST: families are small numbers.
const AF_INET: u16 = bindings::AF_INET as u16;
const AF_INET6: u16 = bindings::AF_INET6 as u16;

const SOCKADDR_IN_LEN: usize = size_of::<sockaddr_in>();
const SOCKADDR_IN6_LEN: usize = size_of::<sockaddr_in6>();

// The layouts that `parse` and `encode` are written for.
const _: () = {
    assert!(SOCKADDR_IN_LEN == 16);
    assert!(offset_of!(sockaddr_in, sin_family) == 0);
    assert!(offset_of!(sockaddr_in, sin_port) == 2);
    assert!(offset_of!(sockaddr_in, sin_addr) == 4);
    assert!(SOCKADDR_IN6_LEN == 28);
    assert!(offset_of!(sockaddr_in6, sin6_family) == 0);
    assert!(offset_of!(sockaddr_in6, sin6_port) == 2);
    assert!(offset_of!(sockaddr_in6, sin6_addr) == 8);
    assert!(offset_of!(sockaddr_in6, sin6_scope_id) == 24);
};

/// Reasons why [`SockAddr::parse`] rejects bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SockAddrError {
    /// Shorter than the structure of its family, or too short to hold a family.
    TooShort,
    /// Neither `AF_INET` nor `AF_INET6`.
    Family,
}

/// A socket address: `sockaddr_in` or `sockaddr_in6`. The port is in host byte order.
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
    /// Length in bytes of the shortest valid address.
    pub(crate) const MIN_LEN: usize = SOCKADDR_IN_LEN;
    /// Maximum length in bytes of the result of [`Self::encode`].
    pub(crate) const MAX_LEN: usize = SOCKADDR_IN6_LEN;

    /// Parses the address that a program passed.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SockAddrError> {
        use SockAddrError::TooShort;
        match u16::from_ne_bytes(*bytes.first_chunk().ok_or(TooShort)?) {
            AF_INET => {
                let bytes: &[u8; SOCKADDR_IN_LEN] = bytes.first_chunk().ok_or(TooShort)?;
                let [_, _, p, q, a, b, c, d, ..] = *bytes;
                Ok(Self::V4 {
                    addr: Ipv4Addr::new(a, b, c, d),
                    port: u16::from_be_bytes([p, q]),
                })
            }
            AF_INET6 => Self::parse_v6(bytes),
            _ => Err(SockAddrError::Family),
        }
    }

    /// Parses a `sockaddr_in6`. The caller has checked the family.
    fn parse_v6(bytes: &[u8]) -> Result<Self, SockAddrError> {
        use SockAddrError::TooShort;
        let bytes: &[u8; SOCKADDR_IN6_LEN] = bytes.first_chunk().ok_or(TooShort)?;
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or(TooShort)?;
        let (addr, scope) = rest.split_first_chunk::<16>().ok_or(TooShort)?;
        let [_family, _, p, q, _flowinfo @ ..] = *head;
        Ok(Self::V6 {
            addr: Ipv6Addr::from(*addr),
            port: u16::from_be_bytes([p, q]),
            scope: u32::from_ne_bytes(*scope.first_chunk().ok_or(TooShort)?),
        })
    }

    /// Returns the bytes of the C structure, and the number of them that are in use.
    pub(crate) fn encode(&self) -> ([u8; Self::MAX_LEN], usize) {
        let mut out = [0; Self::MAX_LEN];
        let len = match self {
            Self::V4 { addr, port } => {
                out[0..2].copy_from_slice(&AF_INET.to_ne_bytes());
                out[2..4].copy_from_slice(&port.to_be_bytes());
                out[4..8].copy_from_slice(&addr.octets());
                SOCKADDR_IN_LEN
            }
            Self::V6 { addr, port, scope } => {
                out[0..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                out[2..4].copy_from_slice(&port.to_be_bytes());
                out[8..24].copy_from_slice(&addr.octets());
                out[24..28].copy_from_slice(&scope.to_ne_bytes());
                SOCKADDR_IN6_LEN
            }
        };
        (out, len)
    }
}

/// An IPv6 address, or an IPv4 address in mapped form, as a number.
///
/// A number is passed, compared and hashed in registers. An [`Ipv6Addr`] is an array of 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IpBits(u128);

impl IpBits {
    const MAPPED: u128 = 0xffff << 32;

    #[inline]
    pub(crate) fn new(addr: Ipv6Addr) -> Self {
        Self(addr.to_bits())
    }

    #[inline]
    pub(crate) fn mapped(addr: Ipv4Addr) -> Self {
        Self(Self::MAPPED | u128::from(addr.to_bits()))
    }

    #[inline]
    pub(crate) fn addr(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.0)
    }

    /// Returns `true` if the address is a loopback address (127.0.0.0/8 or `::1`).
    #[inline]
    pub(crate) fn is_loopback(self) -> bool {
        const V4: u128 = IpBits::MAPPED | 127 << 24;
        self.0 >> 24 == V4 >> 24 || self.0 == 1
    }

    /// Returns the upper and the lower 64 bits.
    #[inline]
    pub(crate) fn halves(self) -> (u64, u64) {
        // CAST: each half has 64 bits.
        ((self.0 >> 64) as u64, self.0 as u64)
    }
}
