// SPDX-License-Identifier: GPL-2.0

//! `sendmsg(2)`: sends one message.
//!
//! A call checks its arguments, finds a route, and waits if its operation is delayed.
//! [`admit`] charges the message to its sender. The call then waits for buffers if the pool is at
//! its limit. Afterwards the data is copied, and the transport gets the message. The message owns
//! its charge, so each failure after `admit` releases it. If a step fails, memory that was
//! registered for the message is released, and nothing is sent.

use super::{
    bind::{
        parse_peer,
        Call, //
    },
    control::{
        control_of,
        too_long,
        Control, //
    },
    op_waits::{
        await_bounce,
        await_op_delay,
        await_pool, //
    },
    operation::OpRequest, //
};
use crate::{
    conn::{
        ConnKey,
        Connection, //
    },
    kapi::{
        errno::Errno,
        net::{
            msg_flags,
            SendMsg,
            Sock,
            Timeout, //
        },
        task::UserId, //
    },
    loop_transport::Destination,
    msg::{
        MsgBuffers,
        MsgOps, //
    },
    proto::wire::MAX_MESSAGE,
    socket::{
        Bound,
        CachedRoute,
        ChargeError,
        Incoming,
        Peer,
        SndbufCharge,
        Socket,
        TransportId,
        WaitingOn, //
    },
    stats::Counter, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Flags that a sender may set. RDS ignores the last five.
const FLAGS: u32 = msg_flags::DONTWAIT
    | msg_flags::CMSG_COMPAT
    | msg_flags::NOSIGNAL
    | msg_flags::EOR
    | msg_flags::CONFIRM
    | msg_flags::MORE
    | msg_flags::BATCH;

/// Route of a message.
enum Route {
    /// To a socket of this node.
    Loop(Destination),
    /// To another node.
    Connection(Arc<Connection>),
}

/// Route of a message with the buffers for it. The loop transport allocates its own.
enum Allocated {
    Loop(Destination),
    Connection(Arc<Connection>, MsgBuffers),
}

/// Sends one message, and returns its length.
///
/// # Errors
///
/// - `EOPNOTSUPP` for an unknown flag, or if the peer has another address family.
/// - `ENOTCONN` if the socket is not bound, or no destination is known.
/// - `EMSGSIZE` if the message is too long.
/// - `EINVAL` if an address or control message is invalid.
/// - `EFAULT` if the program's memory cannot be read.
/// - `EOPNOTSUPP` for an operation, if the peer is this node.
/// - `ENOMEM`
/// - Those of [`await_op_delay`], [`await_bounce`], [`admit`] and [`await_pool`].
/// - Those of `OpRequest::prepare` and [`super::rdma::register`].
/// - Those of `Node::connection()`, for a message to another node.
///
/// # Context
///
/// May sleep.
pub(super) fn sendmsg(sk: &Sock<Socket>, mut msg: SendMsg<'_>) -> Result<usize> {
    if msg.flags() & !FLAGS != 0 {
        return Err(Errno::NotSupported.into());
    }
    sk.cong_notify.ack_reported();
    let named = match msg.name() {
        Some(name) => Some(parse_peer(sk, name, Call::Send)?),
        None => None,
    };
    let bound = sk.bound().ok_or(Errno::NotConnected)?;
    let control = sk.control.lock();
    let last = control.last.clone();
    let peer = match named {
        Some(peer) => peer,
        None => control.peer.ok_or(Errno::NotConnected)?,
    };
    drop(control);
    if is_v4(bound.addr) != is_v4(peer.addr) {
        return Err(Errno::NotSupported.into());
    }
    // A link-local address is valid in its own scope only.
    if peer.scope != 0 && bound.scope != 0 && peer.scope != bound.scope {
        return Err(EINVAL);
    }
    let len = msg.len();
    let limit = sk.send_limit();
    let wire_len = u32::try_from(len)
        .ok()
        .filter(|wire_len| *wire_len <= MAX_MESSAGE && len <= limit)
        .ok_or_else(|| too_long(&msg))?;
    let mut control = if msg.has_control() {
        control_of(&msg)?
    } else {
        None
    };

    let mut route = route(sk, bound, &peer, last)?;
    let mut timeout = sk.send_timeout(msg.flags() & msg_flags::DONTWAIT != 0);
    if let (Route::Connection(connection), Some(control)) = (&route, &mut control) {
        let control = &mut **control;
        if let Some(operation) = &control.operation {
            control.admission = await_op_delay(sk, connection, &mut timeout)?;
            control.bounce = await_bounce(sk, bound, operation, &mut timeout)?;
        }
    }
    let cost = match &route {
        Route::Loop(_) => {
            let meta = control.as_ref().map_or(0, |it| it.meta_size());
            Incoming::cost_of_copy(len).saturating_add(meta)
        }
        Route::Connection(connection) => connection.cost_of_message(wire_len),
    };
    let mut pauses = 0;
    let (route, charge) = loop {
        let charge = admit(sk, &route, peer.port, cost, limit, &mut timeout)?;
        let connection = match route {
            Route::Loop(destination) => break (Allocated::Loop(destination), charge),
            Route::Connection(connection) => connection,
        };
        match connection.alloc_message(wire_len) {
            Err(why) if why == ENOSPC => (),
            buffers => break (Allocated::Connection(connection, buffers?), charge),
        }
        // Its return may wake this socket, so it comes before the record that there is no room.
        drop(charge);
        // An attempt to connect selects the pools of the device that has the address now.
        connection.want_for_waiting();
        await_pool(sk, &mut timeout, &mut pauses)?;
        route = Route::Connection(if connection.has_ended() {
            find_connection(sk, bound, connection.key)?
        } else {
            connection
        });
    };
    let sending = Sending {
        sk,
        bound,
        port: peer.port,
        len: wire_len,
    };
    match control {
        None => sending.hand_over(route, &mut msg, MsgOps::default(), Some(charge))?,
        Some(control) => {
            sending.hand_over_with(KBox::into_inner(control), route, &mut msg, charge)?
        }
    }
    Ok(len)
}

/// Does the same as `to_ipv4_mapped().is_some()`, which takes 22 instructions to compare the bytes.
#[inline]
fn is_v4(addr: Ipv6Addr) -> bool {
    addr.to_bits() >> 32 == 0xffff
}

/// Parameters of a message that was admitted.
struct Sending<'a> {
    sk: &'a Sock<Socket>,
    bound: &'a Bound,
    port: u16,
    len: u32,
}

impl Sending<'_> {
    /// Copies the data, and gives the message to the route. The operation of a message without a
    /// frame holds the charge, so `charge` is then `None`. The loop transport has no operations.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if the data cannot be read.
    /// - `ENOMEM`
    /// - Those of `Node::connection()`, if the connection was forgotten meanwhile.
    #[inline(always)]
    fn hand_over(
        &self,
        route: Allocated,
        msg: &mut SendMsg<'_>,
        ops: MsgOps,
        charge: Option<SndbufCharge>,
    ) -> Result {
        let &Self {
            sk,
            bound,
            port,
            len,
        } = self;
        let (mut connection, buffers) = match route {
            Allocated::Loop(destination) => {
                let charge = charge.ok_or(EINVAL)?;
                // Operations need another node. `hand_over_with` has refused them already.
                if let Some(_operation) = ops.operation {
                    return Err(Errno::NotSupported.into());
                }
                return destination.send(sk, bound, msg, len, ops.memory, charge);
            }
            Allocated::Connection(connection, buffers) => (connection, buffers),
        };
        let ports = (bound.port, port);
        let mut message = connection.message_from_user(buffers, ports, msg, len, ops, charge)?;
        while let Err(back) = connection.send_by_port(message) {
            // The connection was idle, and was forgotten just now.
            message = back;
            connection = find_connection(sk, bound, connection.key)?;
        }
        Ok(())
    }

    /// Does the same as [`Self::hand_over`], with the requests of control messages.
    ///
    /// # Context
    ///
    /// Sleeps.
    #[cold]
    #[inline(never)]
    fn hand_over_with(
        &self,
        control: Control,
        route: Allocated,
        msg: &mut SendMsg<'_>,
        charge: SndbufCharge,
    ) -> Result {
        let Self { sk, bound, .. } = *self;
        if matches!(route, Allocated::Loop(_)) && control.operation.is_some() {
            // Operations need another node.
            return Err(Errno::NotSupported.into());
        }
        let memory = control.memory.map(|it| it.cookie(sk)).transpose()?;
        let (memory, fresh) = memory.map_or((None, None), |(it, fresh)| (Some(it), fresh));
        let mut charge = Some(charge);
        let (admission, bounce) = (control.admission, control.bounce);
        let prepare = |request: OpRequest| {
            let is_silent = memory.is_none() && request.is_silent(self.len);
            request.prepare(sk, bound, charge.take_if(|_| is_silent), admission, bounce)
        };
        let operation = control.operation.map(prepare).transpose();
        let sent = operation.and_then(|operation| {
            let (operation, op_stats) = operation.unzip();
            self.hand_over(route, msg, MsgOps { memory, operation }, charge)?;
            if let Some(op_stats) = op_stats {
                op_stats.count(&sk.node.stats);
            }
            Ok(())
        });
        if let (Err(_), Some(key)) = (&sent, fresh) {
            // No peer knows the key.
            sk.memory.undo(key);
        }
        sent
    }
}

/// Returns the route of a message. `last` is the route of the previous one.
fn route(
    sk: &Sock<Socket>,
    bound: &Bound,
    peer: &Peer,
    last: Option<CachedRoute>,
) -> Result<Route> {
    let transport = sk.node.transports.reaching(sk.net, bound, peer);
    if transport == TransportId::Loop {
        if let Some(CachedRoute::Socket(target)) = last {
            if leads_to(&target, peer) {
                return Ok(Route::Loop(Destination::Socket(target)));
            }
        }
        let found = Destination::new(sk, peer);
        if let Destination::Socket(target) = &found {
            cache_route(sk, CachedRoute::Socket(target.clone()));
        }
        return Ok(Route::Loop(found));
    }
    let key = ConnKey {
        net: sk.net,
        laddr: bound.addr,
        faddr: peer.addr,
        tos: sk.tos_over(transport),
        scope: if peer.scope != 0 {
            peer.scope
        } else {
            bound.scope
        },
        transport,
        path: 0,
    };
    if let Some(CachedRoute::Connection(last)) = last {
        if last.key == key && !last.has_ended() {
            return Ok(Route::Connection(last));
        }
    }
    Ok(Route::Connection(find_connection(sk, bound, key)?))
}

/// Returns the connection with a key, and caches it as the socket's route.
fn find_connection(sk: &Sock<Socket>, bound: &Bound, key: ConnKey) -> Result<Arc<Connection>> {
    let connection = sk.node.connection(key, Some(UserId::current()), || {
        // Checked only here and not for each message, because it needs a route lookup.
        if sk.node.net.is_broadcast(key.faddr) {
            return Err(EINVAL);
        }
        sk.node.transports.pools(bound)
    })?;
    cache_route(sk, CachedRoute::Connection(connection.clone()));
    Ok(connection)
}

/// Returns `true` if a socket of the sender's namespace is still the one that is bound to `peer`.
fn leads_to(target: &Sock<Socket>, peer: &Peer) -> bool {
    let is_it = |bound: &Bound| {
        bound.port == peer.port && bound.addr == peer.addr && bound.scope == peer.scope
    };
    target.bound().is_some_and(is_it) && !target.is_closed()
}

/// Caches the route, because the next message most often has the same.
fn cache_route(sk: &Sock<Socket>, route: CachedRoute) {
    let before = sk.control.lock().last.replace(route);
    // This may drop the last reference, so it happens without the lock.
    drop(before);
}

/// Returns `true` if the port at the end of a route is congested.
fn is_congested(route: &Route, port: u16) -> bool {
    match route {
        Route::Loop(destination) => destination.is_congested(),
        Route::Connection(connection) => connection.is_congested(port),
    }
}

/// Waits for the end of the congestion of a port. The caller checks it again.
///
/// # Errors
///
/// - `ENOBUFS` if the call must not wait.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM`
#[cold]
fn await_port(sk: &Sock<Socket>, route: &Route, port: u16, timeout: &mut Timeout) -> Result {
    let waiting_on = match route {
        Route::Loop(destination) => destination.waiting_on(),
        Route::Connection(connection) => Some(WaitingOn::Peer(connection.clone())),
    };
    // Only a socket is congested, and it has a list.
    let Some(waiting_on) = waiting_on else {
        return Ok(());
    };
    // The socket remembers the list, so that closing it removes it from the list.
    sk.note_waiting(&waiting_on)?;
    let waiters = waiting_on.waiters();
    waiters.add(sk, port, timeout.is_nonblocking())?;
    if timeout.is_nonblocking() {
        sk.note_no_room();
    }
    // The congestion may have ended before the socket was on the list.
    if !is_congested(route, port) {
        return Ok(());
    }
    if timeout.is_nonblocking() {
        sk.node.stats.inc(Counter::CongSendError);
        return Err(Errno::NoBufferSpace.into());
    }
    sk.node.stats.inc(Counter::CongSendBlocked);
    // A wake-up removes the socket from the list. Another port may have room instead.
    let ready = || !is_congested(route, port) || !waiters.has(sk, port);
    match sk.wait_to_write(timeout, ready)? {
        true => Ok(()),
        false => Err(Errno::TimedOut.into()),
    }
}

/// Waits until the destination is not congested and the send buffer has room. For other nodes, also
/// waits until the user's share has room. Then charges `cost` bytes. `limit` is a recent value of
/// the send buffer's limit.
///
/// # Errors
///
/// - `ENOBUFS` if the destination is congested and the call must not wait.
/// - `EAGAIN` if there is no room and the call must not wait.
/// - `ETIMEDOUT` after `SO_SNDTIMEO`.
/// - `ERESTARTSYS` after a signal.
/// - `ENOMEM`
fn admit(
    sk: &Sock<Socket>,
    route: &Route,
    port: u16,
    cost: usize,
    mut limit: usize,
    timeout: &mut Timeout,
) -> Result<SndbufCharge> {
    let account = match route {
        Route::Loop(_) => None,
        Route::Connection(_) => sk.account()?,
    };
    let take = |limit| SndbufCharge::take(sk, account.map(|it| &**it), cost, limit);
    loop {
        while is_congested(route, port) {
            await_port(sk, route, port, timeout)?;
        }
        let full = match take(limit) {
            Ok(charge) => return Ok(charge),
            Err(full) => full,
        };
        // The program may have changed the limit meanwhile.
        limit = sk.send_limit();
        let share = account.filter(|_| full == ChargeError::Share);
        match share {
            None => sk.node.stats.inc(Counter::SendQueueFull),
            Some(share) => {
                sk.node.stats.inc(Counter::SendShareFull);
                sk.await_room(&share.waiters)?;
            }
        }
        if timeout.is_nonblocking() {
            sk.note_no_room();
            // Room that was released before the note wakes nobody. So the call tries once more.
            match take(limit) {
                // The first attempt had no room in the send buffer, this one none in the share. The
                // next round registers with the share.
                Err(ChargeError::Share) if share.is_none() => continue,
                charge => return charge.map_err(|_| EAGAIN),
            }
        }
        let ready = || match share {
            None => sk.is_writable(),
            // A wake-up removes the socket from the list.
            Some(share) => share.has_room(&sk.node) || !share.waiters.has(sk),
        };
        if !sk.wait_to_write(timeout, ready)? {
            return Err(Errno::TimedOut.into());
        }
    }
}
