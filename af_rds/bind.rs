// SPDX-License-Identifier: GPL-2.0

//! `bind(2)`, and the checks of addresses that programs pass.

use crate::{
    kapi::{
        errno::Errno,
        net::{
            IpBits,
            Sock,
            SockAddr,
            SockAddrError, //
        },
        print::pr_program_ratelimited, //
    },
    proto::wire::PROBE_PORT,
    socket::{
        BindError,
        BindKey,
        Peer,
        Socket,
        TransportId,
        FIRST_PORT, //
    },
    stats::Counter,
    trace, //
};
use core::{
    iter,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};
use kernel::prelude::*;

/// System call that an address was passed to. The calls have different error numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Connect,
    Send,
}

/// Returns `true` if an IPv6 address is valid on one link only.
fn is_link_local(addr: &Ipv6Addr) -> bool {
    addr.is_unicast_link_local()
}

/// Checks that an IPv4 address is neither multicast nor broadcast.
///
/// # Errors
///
/// - `EINVAL` otherwise.
fn check_v4(addr: Ipv4Addr) -> Result {
    if addr.is_multicast() || addr.is_broadcast() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Returns `true` if the address of a `connect(2)` is the broadcast address of a network, according
/// to the routes of the namespace. `sendmsg(2)` checks that when it creates a connection.
fn is_for_all(sk: &Sock<Socket>, addr: Ipv6Addr, call: Call) -> bool {
    call == Call::Connect && sk.node.net.is_broadcast(addr)
}

/// Parses and checks the destination of a `connect(2)` or `sendmsg(2)` call.
///
/// # Errors
///
/// - `EAFNOSUPPORT` if `connect(2)` has an address of another family.
/// - `EDESTADDRREQ` if `connect(2)` has the unspecified IPv4 address.
/// - `EPROTOTYPE` if `connect(2)` has an IPv6 address that is not unicast.
/// - `EINVAL` in all other cases.
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

/// Returns the transport that serves a local address.
///
/// # Errors
///
/// - `ENOPROTOOPT` if the program has selected a transport that does not serve the address.
/// - `EADDRNOTAVAIL` if no transport has the address.
/// - `ENOMEM`
///
/// # Context
///
/// May sleep, unless the answer is cached.
// Without inlining this takes 12 more instructions.
#[inline(always)]
fn transport_of(
    sk: &Sock<Socket>,
    addr: IpBits,
    scope: u32,
    loopback: bool,
) -> Result<TransportId> {
    if loopback {
        return loopback_transport(sk, addr);
    }
    let chosen = || sk.control.lock().chosen;
    match sk.node.transports.serving(sk.net, addr, scope, chosen) {
        Ok(Some(transport)) => Ok(transport),
        Ok(None) => Err(no_transport(sk, addr)),
        Err(error) => {
            note_failure(sk, addr, error);
            Err(error)
        }
    }
}

/// Returns the transport that serves a loopback address.
///
/// # Errors
///
/// - Those of [`transport_of`].
///
/// # Context
///
/// May sleep.
// Binding to other addresses takes fewer instructions if this is not inlined.
#[inline(never)]
fn loopback_transport(sk: &Sock<Socket>, addr: IpBits) -> Result<TransportId> {
    let chosen = sk.control.lock().chosen;
    let found = sk.node.transports.serving_loopback(sk.net, addr, chosen)?;
    found.ok_or_else(|| no_transport(sk, addr))
}

/// Counts and traces a failure to find out which device has an address.
#[cold]
fn note_failure(sk: &Sock<Socket>, addr: IpBits, error: Error) {
    sk.node.stats.inc(Counter::IbLaddrFailed);
    trace::error(
        &trace::Conn::local(addr.addr()),
        "local address",
        error.to_errno(),
    );
}

/// Returns the error for an address that no transport has, and logs it.
#[cold]
fn no_transport(sk: &Sock<Socket>, addr: IpBits) -> Error {
    if sk.control.lock().chosen.is_some() {
        return Errno::NoProtocolOption.into();
    }
    pr_program_ratelimited!(
        "bind: no transport has the address {}: is it on an RDMA device that is up? (TCP: tcp=1)\n",
        crate::conn::ShownAddr(addr.addr())
    );
    Errno::AddressNotAvailable.into()
}

/// Checks an IPv4 address to bind to.
///
/// # Errors
///
/// - `EINVAL` if it cannot be a local address.
#[inline]
fn check_own_v4(addr: Ipv4Addr) -> Result {
    check_v4(addr)?;
    if addr.is_unspecified() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Checks an IPv6 address to bind to. Returns its scope, or 0 if the address is valid on all links.
///
/// # Errors
///
/// - `EINVAL` if it cannot be a local address, or has no scope or another scope than the peer.
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

/// Binds a socket.
///
/// # Errors
///
/// - `EINVAL` if the address or port is invalid, or the socket is already bound.
/// - `EADDRINUSE` if the port belongs to another socket.
/// - `EADDRNOTAVAIL` if no transport has the address.
/// - `ENOPROTOOPT` if the program has selected a transport that does not serve the address.
/// - `ENOMEM`
///
/// # Context
///
/// May sleep.
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
    let binds = &sk.node.shared.binds;
    let any_port = port == 0;
    let port = if any_port { binds.pick_port() } else { port };
    let key = BindKey { addr, port, scope };
    let result = match transport_of(sk, addr, scope, loopback) {
        Ok(_) if port == PROBE_PORT => Err(BindError::Reserved),
        Ok(transport) => {
            // RDMA serves other namespaces only as long as sockets use it there.
            let counted = !sk.net.is_init();
            if counted {
                sk.node.begin_use(transport);
            }
            match binds.bind(sk, key, binds.address(addr), transport) {
                Err(BindError::InUse) if any_port => search_port(sk, key, transport),
                result => result,
            }
            .inspect_err(|_| {
                if counted {
                    sk.node.end_use(transport);
                }
            })
        }
        // The error of a bound socket has priority over those of the new address.
        Err(_) if sk.bound().is_some() => return Err(EINVAL),
        Err(error) => return Err(error),
    };
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(refuse(sk, error)),
    }
}

/// Returns the error of a call that did not get its port. As with C RDS, a socket that is not bound
/// may then select its transport again.
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

/// Binds to a free port after a suggested one was in use. Ports in use may be consecutive. So some
/// more suggestions are tried first, and then all ports once.
#[cold]
fn search_port(sk: &Sock<Socket>, key: BindKey, transport: TransportId) -> Result<(), BindError> {
    const CANDIDATES: usize = 32;

    let binds = &sk.node.shared.binds;
    let address = binds.address(key.addr);
    let after = key.port.saturating_add(1);
    let candidates = iter::repeat_with(|| binds.pick_port()).take(CANDIDATES);
    let all = Iterator::chain(after..=u16::MAX, FIRST_PORT..key.port);
    for port in Iterator::chain(candidates, all) {
        match binds.bind(sk, BindKey { port, ..key }, address, transport) {
            Err(BindError::InUse) => {}
            result => return result,
        }
    }
    Err(BindError::InUse)
}

/// Returns the address in the form that programs see: IPv4 for a mapped address.
pub(super) fn sockaddr(addr: Ipv6Addr, port: u16, scope: u32) -> SockAddr {
    match addr.to_ipv4_mapped() {
        Some(addr) => SockAddr::V4 { addr, port },
        None => SockAddr::V6 { addr, port, scope },
    }
}
