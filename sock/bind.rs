// SPDX-License-Identifier: GPL-2.0

//! `bind(2)`, and the addresses that programs give.

use crate::conn::{BindKey, Counter, InsertError};
use crate::kapi::{
    errno::Errno,
    net::{IpBits, Sock, SockAddr, SockAddrError},
    print::pr_info_ratelimited,
    time,
};
use crate::msg::{Bound, Peer, Socket, TransportId};
use crate::proto::wire::PROBE_PORT;
use core::net::{Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;

/// The call that an address was given to; they differ in their error numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Connect,
    Send,
}

/// Whether an IPv6 address is valid on one link only.
fn is_link_local(addr: &Ipv6Addr) -> bool {
    addr.is_unicast_link_local()
}

/// Checks a v4 address that is to be one node's.
fn check_v4(addr: Ipv4Addr) -> Result {
    if addr.is_multicast() || addr.is_broadcast() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Reads and checks the destination of a `connect(2)` or `sendmsg(2)` call.
pub(super) fn parse_peer(sk: &Sock<Socket>, addr: &[u8], call: Call) -> Result<Peer> {
    let parsed = SockAddr::parse(addr).map_err(|error| match (error, call) {
        (SockAddrError::Family, Call::Connect) => Errno::AddressFamilyNotSupported.into(),
        _ => EINVAL,
    })?;
    let bound = sk.bound.as_ref();
    match parsed {
        SockAddr::V4 { addr, port } => {
            if addr.is_unspecified() {
                return Err(match call {
                    Call::Connect => Errno::DestinationRequired.into(),
                    Call::Send => EINVAL,
                });
            }
            check_v4(addr)?;
            Ok(Peer {
                addr: addr.to_ipv6_mapped(),
                port,
                scope: 0,
            })
        }
        SockAddr::V6 { addr, port, scope } => {
            let wrong = || match call {
                Call::Connect => Errno::WrongProtocolType.into(),
                Call::Send => EINVAL,
            };
            if let Some(v4) = addr.to_ipv4_mapped() {
                if v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() {
                    return Err(wrong());
                }
            } else if addr.is_unspecified() || addr.is_multicast() {
                return Err(wrong());
            }
            if !is_link_local(&addr) {
                return Ok(Peer {
                    addr,
                    port,
                    scope: 0,
                });
            }
            if scope == 0 || bound.is_some_and(|b| b.scope != 0 && b.scope != scope) {
                return Err(EINVAL);
            }
            Ok(Peer { addr, port, scope })
        }
    }
}

/// Reads and checks the address of a `bind(2)` call.
fn parse_local(sk: &Sock<Socket>, addr: &[u8]) -> Result<(Ipv6Addr, u16, u32)> {
    let check = |addr: Ipv4Addr| {
        check_v4(addr)?;
        if addr.is_unspecified() {
            return Err(EINVAL);
        }
        Ok(addr.to_ipv6_mapped())
    };
    match SockAddr::parse(addr).map_err(|_| EINVAL)? {
        SockAddr::V4 { addr, port } => Ok((check(addr)?, port, 0)),
        SockAddr::V6 { addr, port, scope } => {
            if let Some(v4) = addr.to_ipv4_mapped() {
                return Ok((check(v4)?, port, 0));
            }
            if addr.is_unspecified() || addr.is_multicast() {
                return Err(EINVAL);
            }
            if !is_link_local(&addr) {
                return Ok((addr, port, 0));
            }
            let peer = sk.control.lock().peer;
            if scope == 0 || peer.is_some_and(|p| p.scope != 0 && p.scope != scope) {
                return Err(EINVAL);
            }
            Ok((addr, port, scope))
        }
    }
}

/// The transport that serves a local address.
fn transport_of(sk: &Sock<Socket>, addr: Ipv6Addr, scope: u32) -> Result<TransportId> {
    let pinned = sk.control.lock().pinned;
    let loopback = addr
        .to_ipv4_mapped()
        .map_or(addr.is_loopback(), |v4| v4.is_loopback());
    if loopback {
        return match pinned {
            None | Some(TransportId::Loop) => Ok(TransportId::Loop),
            Some(_) => Err(Errno::NoProtocolOption.into()),
        };
    }
    match sk.node.has_ib_address(sk.net, IpBits::new(addr), scope) {
        Ok(true) => return Ok(TransportId::Ib),
        Ok(false) => {}
        Err(error) => {
            sk.node.stats.inc(Counter::IbLaddrFailed);
            return Err(error);
        }
    }
    if pinned.is_some() {
        return Err(Errno::NoProtocolOption.into());
    }
    pr_info_ratelimited!(
        "bind: no transport has the address {}: is it up on an RDMA device?\n",
        crate::conn::Shown(addr)
    );
    Err(Errno::AddressNotAvailable.into())
}

/// Binds a socket. The caller holds the socket lock. May sleep.
pub(super) fn bind(sk: &Sock<Socket>, addr: &[u8]) -> Result {
    let (addr, port, scope) = parse_local(sk, addr)?;
    if sk.bound.as_ref().is_some() || port == PROBE_PORT {
        return Err(EINVAL);
    }
    let transport = transport_of(sk, addr, scope)?;
    let mut key = BindKey {
        net: sk.net,
        addr,
        port,
        scope,
    };
    if port == 0 {
        choose_port(sk, &mut key)?;
    } else {
        insert(sk, &key)?;
    }
    // The socket lock keeps a second bind out, so the place is still free.
    let _: bool = sk.bound.populate(Bound {
        addr,
        port: key.port,
        scope,
        transport,
    });
    Ok(())
}

fn insert(sk: &Sock<Socket>, key: &BindKey) -> Result {
    sk.node.binds.insert(*key, sk).map_err(|error| match error {
        InsertError::InUse => Errno::AddressInUse.into(),
        InsertError::NoMemory => ENOMEM,
    })
}

/// Binds to the first free port from a random one on; 0 and 1 have meanings of their own.
fn choose_port(sk: &Sock<Socket>, key: &mut BindKey) -> Result {
    const FIRST: u16 = 2;
    // CAST: any sixteen of the bits will do.
    let start = (time::random_u32() as u16).max(FIRST);
    for port in Iterator::chain(start..=u16::MAX, FIRST..start) {
        key.port = port;
        match sk.node.binds.insert(*key, sk) {
            Ok(()) => return Ok(()),
            Err(InsertError::InUse) => {}
            Err(InsertError::NoMemory) => return Err(ENOMEM),
        }
    }
    Err(Errno::AddressInUse.into())
}

/// Ends the binding of a socket that is being closed. May sleep.
pub(super) fn unbind(sk: &Sock<Socket>) {
    if let Some(bound) = sk.bound.as_ref() {
        sk.node.binds.remove(&BindKey {
            net: sk.net,
            addr: bound.addr,
            port: bound.port,
            scope: bound.scope,
        });
    }
}
