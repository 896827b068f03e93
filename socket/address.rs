// SPDX-License-Identifier: GPL-2.0

//! Addresses of sockets.

use super::transport_id::TransportId;
use core::net::Ipv6Addr;

/// Local address of a bound socket. It never changes.
pub(crate) struct Bound {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
    pub(crate) transport: TransportId,
}

/// Destination of messages for which the call names none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}
