// SPDX-License-Identifier: GPL-2.0

//! Conversion of addresses and private data to the form that the CM expects.

use crate::proto::ib_private::{
    Private,
    LEN_V6,
    PORT_V4,
    PORT_V6, //
};
use core::net::{
    Ipv6Addr,
    SocketAddr,
    SocketAddrV6, //
};

/// Returns the socket address of an address in protocol form. IPv4 addresses are mapped there.
pub(super) fn socket_addr(addr: Ipv6Addr, port: u16, scope: u32) -> SocketAddr {
    match addr.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(v4.into(), port),
        None => SocketAddr::V6(SocketAddrV6::new(addr, port, 0, scope)),
    }
}

/// Returns the port of the RDS listener for the family of `addr`.
pub(super) fn cm_port(addr: Ipv6Addr) -> u16 {
    if addr.to_ipv4_mapped().is_some() {
        PORT_V4
    } else {
        PORT_V6
    }
}

/// Encoded private data. Its length depends on the address family.
pub(super) struct PrivateBytes {
    bytes: [u8; LEN_V6],
    len: usize,
}

impl PrivateBytes {
    pub(super) fn new(private: &Private) -> Self {
        match private.emit_v4() {
            Some(v4) => {
                let mut bytes = [0; LEN_V6];
                for (to, from) in bytes.iter_mut().zip(v4) {
                    *to = from;
                }
                Self {
                    bytes,
                    len: v4.len(),
                }
            }
            None => Self {
                bytes: private.emit_v6(),
                len: LEN_V6,
            },
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}
