// SPDX-License-Identifier: GPL-2.0

//! Socket addresses in the format of the CM.

use crate::{
    bindings,
    kapi::net::SockAddr, //
};
use core::net::{
    SocketAddr,
    SocketAddrV6, //
};

/// A `sockaddr_storage`, which has room for any address family.
#[repr(C, align(8))]
pub(super) struct Storage([u8; Self::LEN]);

impl Storage {
    const LEN: usize = size_of::<bindings::__kernel_sockaddr_storage>();

    pub(super) fn new(addr: &SocketAddr) -> Self {
        let addr = match addr {
            SocketAddr::V4(v4) => SockAddr::V4 {
                addr: *v4.ip(),
                port: v4.port(),
            },
            SocketAddr::V6(v6) => SockAddr::V6 {
                addr: *v6.ip(),
                port: v6.port(),
                scope: v6.scope_id(),
            },
        };
        let mut storage = Self([0; Self::LEN]);
        for (to, from) in storage.0.iter_mut().zip(addr.encode().0) {
            *to = from;
        }
        storage
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut bindings::sockaddr {
        self.0.as_mut_ptr().cast()
    }
}

/// Reads the address at `raw`. Returns `None` if it is not an IPv4 or IPv6 address.
///
/// # Safety
///
/// `raw` must point to an address that does not change during the call.
pub(super) unsafe fn read(raw: *const bindings::__kernel_sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: By the caller's guarantee there is a whole `sockaddr_storage`.
    let bytes = unsafe { &*raw.cast::<[u8; Storage::LEN]>() };
    match SockAddr::parse(bytes).ok()? {
        SockAddr::V4 { addr, port } => Some(SocketAddr::new(addr.into(), port)),
        SockAddr::V6 { addr, port, scope } => {
            Some(SocketAddr::V6(SocketAddrV6::new(addr, port, 0, scope)))
        }
    }
}
