// SPDX-License-Identifier: GPL-2.0

//! `bind(2)`, and the addresses that programs give.

use crate::conn::{BindError, BindKey, Counter, FIRST_PORT};
use crate::kapi::{
    errno::Errno,
    net::{is_broadcast, IpBits, Sock, SockAddr, SockAddrError},
    print::pr_program_ratelimited,
    trace,
};
use crate::msg::{Peer, Socket, TransportId};
use crate::proto::wire::PROBE_PORT;
use core::{
    iter,
    net::{Ipv4Addr, Ipv6Addr},
};
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

/// Whether a `connect(2)` names all hosts of a network, as its routes have it. A `sendmsg(2)` finds out
/// when it needs a connection.
fn is_for_all(sk: &Sock<Socket>, addr: Ipv6Addr, call: Call) -> bool {
    call == Call::Connect && sk.net.is_init() && is_broadcast(addr)
}

/// Reads and checks the destination of a `connect(2)` or `sendmsg(2)` call.
pub(super) fn parse_peer(sk: &Sock<Socket>, addr: &[u8], call: Call) -> Result<Peer> {
    let parsed = SockAddr::parse(addr).map_err(|error| match (error, call) {
        (SockAddrError::Family, Call::Connect) => Errno::AddressFamilyNotSupported.into(),
        _ => EINVAL,
    })?;
    let bound = sk.bound();
    match parsed {
        SockAddr::V4 { addr, port } => {
            if addr.is_unspecified() {
                return Err(match call {
                    Call::Connect => Errno::DestinationRequired.into(),
                    Call::Send => EINVAL,
                });
            }
            check_v4(addr)?;
            let addr = addr.to_ipv6_mapped();
            if is_for_all(sk, addr, call) {
                return Err(EINVAL);
            }
            Ok(Peer {
                addr,
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
                let bad = v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast();
                if bad || is_for_all(sk, addr, call) {
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

/// The transport that serves a local address. May sleep, unless that is known.
// Not inlined it takes 12 instructions more.
#[inline(always)]
fn transport_of(
    sk: &Sock<Socket>,
    addr: IpBits,
    scope: u32,
    loopback: bool,
) -> Result<TransportId> {
    if loopback {
        let chosen = sk.control.lock().chosen;
        return match chosen {
            None | Some(TransportId::Loop) => Ok(TransportId::Loop),
            Some(_) => Err(Errno::NoProtocolOption.into()),
        };
    }
    // Whoever asked for a transport asked for this one.
    match sk.node.has_ib_address(sk.net, addr, scope) {
        Ok(true) => Ok(TransportId::Ib),
        Ok(false) => Err(no_transport(sk, addr)),
        Err(error) => {
            note_failure(sk, addr, error);
            Err(error)
        }
    }
}

/// Counts and traces that it could not be found out whether a device has an address.
#[cold]
fn note_failure(sk: &Sock<Socket>, addr: IpBits, error: Error) {
    sk.node.stats.inc(Counter::IbLaddrFailed);
    trace::error(
        &trace::Conn::local(addr.addr()),
        "local address",
        error.to_errno(),
    );
}

/// Says that no transport has an address.
#[cold]
fn no_transport(sk: &Sock<Socket>, addr: IpBits) -> Error {
    if sk.control.lock().chosen.is_some() {
        return Errno::NoProtocolOption.into();
    }
    pr_program_ratelimited!(
        "bind: no transport has the address {}: is it up on an RDMA device?\n",
        crate::conn::ShownAddr(addr.addr())
    );
    Errno::AddressNotAvailable.into()
}

/// Checks an IPv4 address that a socket is to have. Fails with EINVAL.
#[inline]
fn check_own_v4(addr: Ipv4Addr) -> Result {
    check_v4(addr)?;
    if addr.is_unspecified() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Checks an IPv6 address that a socket is to have, and returns the scope that counts. Fails with
/// EINVAL.
fn check_own_v6(sk: &Sock<Socket>, addr: &Ipv6Addr, scope: u32) -> Result<u32> {
    if let Some(v4) = addr.to_ipv4_mapped() {
        return check_own_v4(v4).map(|()| 0);
    }
    if addr.is_unspecified() || addr.is_multicast() {
        return Err(EINVAL);
    }
    if !is_link_local(addr) {
        return Ok(0);
    }
    let peer = sk.control.lock().peer;
    if scope == 0 || peer.is_some_and(|p| p.scope != 0 && p.scope != scope) {
        return Err(EINVAL);
    }
    Ok(scope)
}

/// Binds a socket. May sleep.
#[inline]
pub(super) fn bind(sk: &Sock<Socket>, addr: &[u8]) -> Result {
    let (addr, port, scope, loopback) = match SockAddr::parse(addr).map_err(|_| EINVAL)? {
        SockAddr::V4 { addr, port } => {
            check_own_v4(addr)?;
            (IpBits::mapped(addr), port, 0, addr.is_loopback())
        }
        SockAddr::V6 { addr, port, scope } => {
            let scope = check_own_v6(sk, &addr, scope)?;
            let addr = IpBits::new(addr);
            (addr, port, scope, addr.is_loopback())
        }
    };
    let binds = &sk.node.binds;
    let any_port = port == 0;
    let port = if any_port { binds.pick_port() } else { port };
    let key = BindKey { addr, port, scope };
    let result = match transport_of(sk, addr, scope, loopback) {
        Ok(_) if port == PROBE_PORT => Err(BindError::Reserved),
        Ok(transport) => match binds.bind(sk, key, binds.address(addr), transport) {
            Err(BindError::InUse) if any_port => search_port(sk, key, transport),
            result => result,
        },
        // That it is bound already comes before anything about the new address.
        Err(_) if sk.bound().is_some() => return Err(EINVAL),
        Err(error) => return Err(error),
    };
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(refuse(sk, error)),
    }
}

/// What the call returns that has not got its port. As with C, a socket that is not bound then may choose its transport
/// again.
#[cold]
fn refuse(sk: &Sock<Socket>, error: BindError) -> Error {
    if sk.bound().is_some() {
        return EINVAL;
    }
    sk.control.lock().chosen = None;
    match error {
        BindError::InUse => Errno::AddressInUse.into(),
        BindError::Reserved | BindError::Bound => EINVAL,
    }
}

/// Binds to a free port if one that was suggested is not. What is taken may be one after the other, so some more
/// suggestions come first, and then all ports, each once.
#[cold]
fn search_port(sk: &Sock<Socket>, key: BindKey, transport: TransportId) -> Result<(), BindError> {
    const SUGGESTIONS: usize = 32;

    let binds = &sk.node.binds;
    let address = binds.address(key.addr);
    let after = key.port.saturating_add(1);
    let suggested = iter::repeat_with(|| binds.pick_port()).take(SUGGESTIONS);
    let all = Iterator::chain(after..=u16::MAX, FIRST_PORT..key.port);
    for port in Iterator::chain(suggested, all) {
        match binds.bind(sk, BindKey { port, ..key }, address, transport) {
            Err(BindError::InUse) => {}
            result => return result,
        }
    }
    Err(BindError::InUse)
}
