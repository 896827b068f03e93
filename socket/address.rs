// SPDX-License-Identifier: GPL-2.0

//! Addresses of sockets, and the numbers of the transports.

use crate::uapi::{RDS_TRANS_COUNT, RDS_TRANS_IB, RDS_TRANS_TCP};
use core::net::Ipv6Addr;

/// Transports, with their numbers in `SO_RDS_TRANSPORT`.
///
/// The loop transport has the first number that programs do not have, as in C RDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub(crate) enum TransportId {
    Ib = RDS_TRANS_IB,
    Tcp = RDS_TRANS_TCP,
    Loop = RDS_TRANS_COUNT,
}

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
