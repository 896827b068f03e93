// SPDX-License-Identifier: GPL-2.0

//! The key of a connection, and the text forms of its addresses.

use crate::{
    kapi::net::Net,
    socket::TransportId,
    trace::{
        self,
        TracedMsg, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*, //
};

/// Key of a connection. The field order sorts the keys of one local address next to each other.
/// Connections over different transports may be between the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnKey {
    pub(crate) net: Net,
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) scope: u32,
    pub(crate) tos: u8,
    pub(crate) transport: TransportId,
    /// Index of the path. Connections of other transports than TCP have only the first one, 0.
    pub(crate) path: u8,
}

impl ConnKey {
    /// Returns the least key of a local address, or of the pair if a peer address is given.
    pub(crate) fn least_of(net: Net, laddr: Ipv6Addr, faddr: Option<Ipv6Addr>) -> Self {
        Self {
            net,
            laddr,
            faddr: faddr.unwrap_or(Ipv6Addr::UNSPECIFIED),
            scope: 0,
            tos: 0,
            transport: TransportId::LEAST,
            path: 0,
        }
    }

    /// Returns `true` if the key has this local address, and this peer address if one is given.
    pub(crate) fn is_of(&self, net: Net, laddr: Ipv6Addr, faddr: Option<Ipv6Addr>) -> bool {
        self.net == net && self.laddr == laddr && faddr.is_none_or(|faddr| self.faddr == faddr)
    }

    /// Returns the interface to which the local address is restricted. 0 if it is valid on all. The
    /// scope may belong to the peer address only.
    pub(crate) fn local_scope(&self) -> u32 {
        match self.laddr.is_unicast_link_local() {
            true => self.scope,
            false => 0,
        }
    }

    /// Returns the form that tracepoints use.
    #[cold]
    pub(crate) fn traced(&self) -> trace::Conn {
        trace::Conn::new(self.laddr, self.faddr, self.tos)
    }

    /// Returns the form of a message on the connection that tracepoints use. `ports` are those of
    /// its sender and its receiver.
    #[cold]
    pub(super) fn traced_msg(
        &self,
        (sport, dport): (u16, u16),
        bytes: u32,
        sequence: u64,
    ) -> Option<TracedMsg> {
        Some(TracedMsg {
            conn: self.traced(),
            transport: self.transport as u8,
            sport,
            dport,
            bytes,
            sequence,
        })
    }
}

impl fmt::Display for ConnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(fmt!(
            "{} -> {}",
            ShownAddr(self.laddr),
            ShownAddr(self.faddr)
        ))?;
        if self.tos != 0 {
            f.write_fmt(fmt!(" tos {}", self.tos))?;
        }
        if self.path != 0 {
            f.write_fmt(fmt!(" path {}", self.path))?;
        }
        Ok(())
    }
}

/// An address in the usual text form. IPv4-mapped addresses are shown as IPv4.
pub(crate) struct ShownAddr(pub(crate) Ipv6Addr);

impl fmt::Display for ShownAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(v4) => core::fmt::Display::fmt(&v4, f),
            None => core::fmt::Display::fmt(&self.0, f),
        }
    }
}

/// An address as C RDS writes it. IPv4-mapped addresses stay IPv6.
pub(crate) struct AsIs(pub(crate) Ipv6Addr);

impl fmt::Display for AsIs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}
