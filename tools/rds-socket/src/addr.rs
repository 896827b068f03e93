// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Conversion between [`SocketAddr`] and the kernel's socket addresses.

use std::mem;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::slice;

/// A socket address in the kernel's layout, with the length that belongs to its family.
pub(crate) enum RawAddr {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl RawAddr {
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            RawAddr::V4(sin) => (sin as *const libc::sockaddr_in).cast(),
            RawAddr::V6(sin6) => (sin6 as *const libc::sockaddr_in6).cast(),
        }
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        let len = match self {
            RawAddr::V4(_) => mem::size_of::<libc::sockaddr_in>(),
            RawAddr::V6(_) => mem::size_of::<libc::sockaddr_in6>(),
        };
        len as libc::socklen_t
    }
}

impl RawAddr {
    /// Returns the [`Self::len`] bytes of the address.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the address is valid for its length, and has no padding.
        unsafe { slice::from_raw_parts(self.as_ptr().cast(), self.len() as usize) }
    }
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => RawAddr::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => RawAddr::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

/// Room for an address that the kernel writes.
pub(crate) struct AddrBuf(libc::sockaddr_storage);

impl AddrBuf {
    pub(crate) fn new() -> Self {
        // SAFETY: `sockaddr_storage` is integers only, for which all-zero is a value.
        AddrBuf(unsafe { mem::zeroed() })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&mut self.0 as *mut libc::sockaddr_storage).cast()
    }

    pub(crate) const fn capacity() -> libc::socklen_t {
        mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t
    }

    /// Returns the address, of which the kernel wrote `len` bytes; `None` if it wrote no IP
    /// address.
    pub(crate) fn get(&self, len: libc::socklen_t) -> Option<SocketAddr> {
        let base: *const libc::sockaddr_storage = &self.0;
        match i32::from(self.0.ss_family) {
            libc::AF_INET if len as usize >= mem::size_of::<libc::sockaddr_in>() => {
                // SAFETY: `sockaddr_storage` is larger than, and as aligned as, `sockaddr_in`,
                // which is valid for any bytes.
                let sin = unsafe { *base.cast::<libc::sockaddr_in>() };
                let ip = sin.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddrV4::new(ip.into(), u16::from_be(sin.sin_port)).into())
            }
            libc::AF_INET6 if len as usize >= mem::size_of::<libc::sockaddr_in6>() => {
                // SAFETY: `sockaddr_storage` is larger than, and as aligned as, `sockaddr_in6`,
                // which is valid for any bytes.
                let sin6 = unsafe { *base.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                let port = u16::from_be(sin6.sin6_port);
                Some(SocketAddrV6::new(ip, port, sin6.sin6_flowinfo, sin6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(addr: SocketAddr) -> Option<SocketAddr> {
        let raw = RawAddr::from(addr);
        let mut buf = AddrBuf::new();
        // SAFETY: both are valid for `raw.len()` bytes, and distinct.
        unsafe {
            std::ptr::copy_nonoverlapping(
                raw.as_ptr().cast::<u8>(),
                buf.as_mut_ptr().cast::<u8>(),
                raw.len() as usize,
            )
        };
        buf.get(raw.len())
    }

    #[test]
    fn addresses_survive_the_kernel_layout() {
        for text in [
            "10.1.2.3:4567",
            "127.0.0.1:0",
            "[fe80::1:2%7]:65535",
            "[::1]:1",
        ] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(round_trip(addr), Some(addr));
        }
    }

    #[test]
    fn layout_is_big_endian() {
        let RawAddr::V4(sin) = RawAddr::from("1.2.3.4:258".parse::<SocketAddr>().unwrap()) else {
            panic!("IPv4 became something else");
        };
        assert_eq!(sin.sin_port.to_ne_bytes(), [1, 2]);
        assert_eq!(sin.sin_addr.s_addr.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn short_or_unknown_addresses_are_none() {
        let raw = RawAddr::from("10.1.2.3:4567".parse::<SocketAddr>().unwrap());
        let mut buf = AddrBuf::new();
        assert_eq!(buf.get(AddrBuf::capacity()), None);
        buf.0.ss_family = libc::AF_INET as libc::sa_family_t;
        assert_eq!(buf.get(raw.len() - 1), None);
    }
}
