// SPDX-License-Identifier: GPL-2.0

//! `sendmsg(2)`: a message is admitted first, copied then, and handed to its transport last.

use super::{
    bind::{parse_peer, Call},
    rdma, SOL_RDS,
};
use crate::conn::{ConnKey, Connection, Counter};
use crate::kapi::{
    errno::Errno,
    net::{msg_flags, SendMsg, Sock, Timeout},
};
use crate::loop_transport::Destination;
use crate::msg::{Bound, Incoming, Peer, Socket, Ticket, TransportId, WaitingOn, Way};
use crate::proto::{
    rdma::{Cookie, GetMr},
    wire::MAX_MESSAGE,
};
use kernel::{prelude::*, sync::Arc};

/// Flags that a sender may set. The last four ask for nothing that RDS would do differently.
const FLAGS: u32 = msg_flags::DONTWAIT
    | msg_flags::CMSG_COMPAT
    | msg_flags::NOSIGNAL
    | msg_flags::EOR
    | msg_flags::MORE
    | msg_flags::BATCH;

/// Control messages of `SOL_RDS` that carry RDMA operations (3 and 6 to 9 among others).
const CMSG_RDMA: core::ops::RangeInclusive<i32> = 1..=9;

const CMSG_RDMA_DEST: i32 = 2;
const CMSG_RDMA_MAP: i32 = 3;

/// Where a message goes.
enum Route {
    /// To a socket of this node.
    Loop(Destination),
    /// To another node.
    Connection(Arc<Connection>),
}

/// Sends one message. May sleep.
pub(super) fn sendmsg(sk: &Sock<Socket>, mut msg: SendMsg<'_>) -> Result<usize> {
    if msg.flags() & !FLAGS != 0 {
        return Err(Errno::NotSupported.into());
    }
    let named = msg
        .name()
        .map(|name| parse_peer(sk, name, Call::Send))
        .transpose()?;
    let bound = sk.bound().ok_or(Errno::NotConnected)?;
    let control = sk.control.lock();
    let (connected, last) = (control.peer, control.last.clone());
    drop(control);
    let peer = named.or(connected).ok_or(Errno::NotConnected)?;
    if bound.addr.to_ipv4_mapped().is_some() != peer.addr.to_ipv4_mapped().is_some() {
        return Err(Errno::NotSupported.into());
    }
    if peer.scope != 0 && bound.scope != 0 && peer.scope != bound.scope {
        return Err(EINVAL);
    }
    let len = msg.len();
    let wire_len = u32::try_from(len)
        .ok()
        .filter(|len| *len <= MAX_MESSAGE)
        .ok_or(Errno::MessageTooLong)?;
    let limit = sk.send_limit();
    if len > limit {
        return Err(Errno::MessageTooLong.into());
    }
    let memory = memory_of(&msg)?;

    let route = route(sk, bound, &peer, last)?;
    let timeout = sk.send_timeout(msg.flags() & msg_flags::DONTWAIT != 0);
    let cost = match &route {
        Route::Loop(_) => Incoming::cost_of_copy(len),
        Route::Connection(connection) => connection.cost_of_message(wire_len),
    };
    let ticket = admit(sk, &route, peer.port, cost, limit, timeout)?;
    match route {
        Route::Loop(destination) => {
            let cookie = memory.map(|it| it.cookie(sk)).transpose()?;
            destination.send(sk, bound, &mut msg, wire_len, cookie, ticket)?;
        }
        Route::Connection(mut connection) => {
            let ports = (bound.port, peer.port);
            let cookie = memory.map(|it| it.cookie(sk)).transpose()?;
            let mut message =
                connection.message_from_user(ports, &mut msg, wire_len, cookie, ticket)?;
            while let Err(back) = connection.send(message) {
                // It was idle, and has just been forgotten.
                message = back;
                connection = find_connection(sk, bound, connection.key)?;
            }
        }
    }
    Ok(len)
}

/// The memory of the sender that a message tells the receiver of.
enum Told {
    /// What the program has registered before.
    Known(Cookie),
    /// What it registers with the message.
    New(GetMr),
}

impl Told {
    /// Registers it if that was not done before. Sleeps.
    fn cookie(self, sk: &Sock<Socket>) -> Result<Cookie> {
        match self {
            Self::Known(cookie) => Ok(cookie),
            Self::New(args) => rdma::register(sk, &args),
        }
    }
}

/// What the control messages ask for. Refuses what we cannot act on.
fn memory_of(msg: &SendMsg<'_>) -> Result<Option<Told>> {
    let mut memory = None;
    for cmsg in msg.cmsgs() {
        let cmsg = cmsg?;
        if cmsg.level != SOL_RDS {
            continue;
        }
        let told = match cmsg.kind {
            CMSG_RDMA_DEST => {
                let bits = cmsg.data.first_chunk().ok_or(EINVAL)?;
                Told::Known(Cookie::from_bits(u64::from_ne_bytes(*bits)))
            }
            CMSG_RDMA_MAP => {
                let args = cmsg.data.first_chunk().ok_or(EINVAL)?;
                Told::New(GetMr::parse(args).ok_or(EINVAL)?)
            }
            // As C answers for a transport that has no RDMA.
            kind if CMSG_RDMA.contains(&kind) => return Err(Errno::NotSupported.into()),
            _ => return Err(EINVAL),
        };
        // There is room for one.
        if memory.replace(told).is_some() {
            return Err(EINVAL);
        }
    }
    Ok(memory)
}

/// Where a message goes: the `last` one went that way.
fn route(sk: &Sock<Socket>, bound: &Bound, peer: &Peer, last: Option<Way>) -> Result<Route> {
    // What a node sends to the very address that it sends from needs no wire.
    if bound.transport == TransportId::Loop || bound.addr == peer.addr {
        if let Some(Way::Socket(target)) = last {
            if leads_to(&target, peer) {
                return Ok(Route::Loop(Destination::Socket(target)));
            }
        }
        let found = Destination::new(sk, peer);
        if let Destination::Socket(target) = &found {
            remember(sk, Way::Socket(target.clone()));
        }
        return Ok(Route::Loop(found));
    }
    let key = ConnKey {
        net: sk.net,
        laddr: bound.addr,
        faddr: peer.addr,
        tos: sk.tos(),
        scope: if peer.scope != 0 {
            peer.scope
        } else {
            bound.scope
        },
    };
    if let Some(Way::Connection(last)) = last {
        if last.key == key && !last.has_ended() {
            return Ok(Route::Connection(last));
        }
    }
    Ok(Route::Connection(find_connection(sk, bound, key)?))
}

/// The connection with a key, which the socket remembers as its last one.
fn find_connection(sk: &Sock<Socket>, bound: &Bound, key: ConnKey) -> Result<Arc<Connection>> {
    let connection = sk
        .node
        .connection(key, || sk.node.pools(bound.addr, bound.scope))?;
    remember(sk, Way::Connection(connection.clone()));
    Ok(connection)
}

/// Whether a socket of the sender's namespace is still the one that is bound to `peer`.
fn leads_to(target: &Sock<Socket>, peer: &Peer) -> bool {
    let is_it = |bound: &Bound| {
        bound.port == peer.port && bound.addr == peer.addr && bound.scope == peer.scope
    };
    target.bound().is_some_and(is_it) && !target.is_closed()
}

/// The next message most often goes the same way.
fn remember(sk: &Sock<Socket>, way: Way) {
    let before = sk.control.lock().last.replace(way);
    // It may hold the last reference, so it goes without the lock.
    drop(before);
}

/// Waits until the destination takes messages and the send buffer has room, and takes `cost` bytes of it.
/// `limit` is what the socket's was a moment ago.
///
/// Fails with ENOBUFS (congested) or EAGAIN (send buffer full) if the call must not wait, with
/// ETIMEDOUT after `SO_SNDTIMEO`, with ERESTARTSYS after a signal.
fn admit(
    sk: &Sock<Socket>,
    route: &Route,
    port: u16,
    cost: usize,
    mut limit: usize,
    mut timeout: Timeout,
) -> Result<Ticket> {
    let congested = || match route {
        Route::Loop(destination) => destination.is_congested(),
        Route::Connection(connection) => connection.is_congested(port),
    };
    loop {
        if congested() {
            let waiting_on = match route {
                Route::Loop(destination) => destination.waiting_on(),
                Route::Connection(connection) => Some(WaitingOn::Peer(connection.clone())),
            };
            let Some(waiting_on) = waiting_on else {
                continue;
            };
            // The socket remembers the list, so that it can be taken off it when it is closed.
            sk.note_waiting(&waiting_on)?;
            let waiters = waiting_on.waiters();
            waiters.add(sk, port, timeout.is_nonblocking())?;
            // It may have ended before we were on the list.
            if congested() {
                if timeout.is_nonblocking() {
                    sk.node.stats.inc(Counter::CongSendError);
                    return Err(Errno::NoBufferSpace.into());
                }
                sk.node.stats.inc(Counter::CongSendBlocked);
                // Who is woken is off the list, whichever port it was that got room.
                if !sk.wait(&mut timeout, || !congested() || !waiters.has(sk, port))? {
                    return Err(Errno::TimedOut.into());
                }
                continue;
            }
        }
        if let Some(ticket) = Ticket::take(sk, cost, limit) {
            return Ok(ticket);
        }
        // It may have been changed since.
        limit = sk.send_limit();
        sk.node.stats.inc(Counter::SendQueueFull);
        if timeout.is_nonblocking() {
            return Err(EAGAIN);
        }
        if !sk.wait(&mut timeout, || sk.is_writable())? {
            return Err(Errno::TimedOut.into());
        }
    }
}
