// SPDX-License-Identifier: GPL-2.0

//! What identifies a connection, and how people are shown that.

use crate::kapi::{net::Net, trace};
use core::net::Ipv6Addr;
use kernel::{fmt, prelude::*};

/// What identifies a connection. In this order, those of one local address are next to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnKey {
    pub(crate) net: Net,
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) scope: u32,
    pub(crate) tos: u8,
}

impl ConnKey {
    /// No key of the local address, or of this and the peer address if one is given, is less than this
    /// one.
    pub(super) fn least_of(net: Net, laddr: Ipv6Addr, faddr: Option<Ipv6Addr>) -> Self {
        Self {
            net,
            laddr,
            faddr: faddr.unwrap_or(Ipv6Addr::UNSPECIFIED),
            scope: 0,
            tos: 0,
        }
    }

    /// Whether it is the key of a connection of the local address, to the peer address if one is given.
    pub(super) fn is_of(&self, net: Net, laddr: Ipv6Addr, faddr: Option<Ipv6Addr>) -> bool {
        self.net == net && self.laddr == laddr && faddr.is_none_or(|faddr| self.faddr == faddr)
    }

    /// The link that the local address is valid on, 0 if it is on all. The peer address may be
    /// valid on one only where the local one is not.
    pub(crate) fn local_scope(&self) -> u32 {
        match self.laddr.is_unicast_link_local() {
            true => self.scope,
            false => 0,
        }
    }

    /// For tracepoints.
    #[cold]
    pub(super) fn traced(&self) -> trace::Conn {
        trace::Conn::new(self.laddr, self.faddr, self.tos)
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
        Ok(())
    }
}

/// An address as people write it: IPv4 where it is a mapped one.
pub(crate) struct ShownAddr(pub(crate) Ipv6Addr);

impl fmt::Display for ShownAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(v4) => core::fmt::Display::fmt(&v4, f),
            None => core::fmt::Display::fmt(&self.0, f),
        }
    }
}

/// An address as C RDS writes it: a mapped one stays what it is.
pub(crate) struct AsIs(pub(crate) Ipv6Addr);

impl fmt::Display for AsIs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}
