// SPDX-License-Identifier: GPL-2.0

//! `sendmsg(2)`: a message is admitted first, copied then, and handed to its transport last.

use super::{
    bind::{parse_peer, Call},
    operation::OpRequest,
    rdma, SOL_RDS,
};
use crate::conn::{ConnKey, Connection, Counter};
use crate::kapi::{
    errno::Errno,
    net::{is_broadcast, msg_flags, poll, SendMsg, Sock, Timeout},
    task::UserId,
};
use crate::loop_transport::Destination;
use crate::msg::{
    Bound, CachedRoute, Incoming, MsgMeta, MsgOps, NoTicket, Peer, RegionKey, SndbufCharge, Socket,
    TransportId, WaitingOn,
};
use crate::proto::{
    rdma::{AtomicArgs, AtomicKind, Cookie, GetMr, Transfer},
    wire::MAX_MESSAGE,
};
use core::net::Ipv6Addr;
use kernel::{prelude::*, sync::Arc};

/// Flags that a sender may set. The last five ask for nothing that RDS would do differently.
const FLAGS: u32 = msg_flags::DONTWAIT
    | msg_flags::CMSG_COMPAT
    | msg_flags::NOSIGNAL
    | msg_flags::EOR
    | msg_flags::CONFIRM
    | msg_flags::MORE
    | msg_flags::BATCH;

/// Control messages of `SOL_RDS`.
const CMSG_RDMA_ARGS: i32 = 1;
const CMSG_RDMA_DEST: i32 = 2;
const CMSG_RDMA_MAP: i32 = 3;
const CMSG_ATOMIC_FADD: i32 = 6;
const CMSG_ATOMIC_CSWP: i32 = 7;
const CMSG_MASKED_ATOMIC_FADD: i32 = 8;
const CMSG_MASKED_ATOMIC_CSWP: i32 = 9;

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
    if peer.scope != 0 && bound.scope != 0 && peer.scope != bound.scope {
        return Err(EINVAL);
    }
    let len = msg.len();
    let limit = sk.send_limit();
    let wire_len = u32::try_from(len)
        .ok()
        .filter(|wire_len| *wire_len <= MAX_MESSAGE && len <= limit)
        .ok_or_else(|| too_long(&msg))?;
    let control = if msg.has_control() {
        control_of(&msg)?
    } else {
        None
    };

    let route = route(sk, bound, &peer, last)?;
    let mut timeout = sk.send_timeout(msg.flags() & msg_flags::DONTWAIT != 0);
    if let (Route::Connection(connection), Some(control)) = (&route, &control) {
        if control.operation.is_some() {
            await_turn(sk, connection, &mut timeout)?;
        }
    }
    let cost = match &route {
        Route::Loop(_) => {
            let meta = control.as_ref().map_or(0, |it| it.size_beside());
            Incoming::cost_of_copy(len).saturating_add(meta)
        }
        Route::Connection(connection) => connection.cost_of_message(wire_len),
    };
    let charge = admit(sk, &route, peer.port, cost, limit, timeout)?;
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

/// What a call returns whose message is too long: as with C that control messages are malformed comes first.
#[cold]
fn too_long(msg: &SendMsg<'_>) -> Error {
    for cmsg in msg.cmsgs() {
        match cmsg {
            Err(error) => return error,
            Ok(it) if it.level == SOL_RDS && it.kind == CMSG_RDMA_ARGS => {
                if it.data.len() < Transfer::LEN {
                    return EINVAL;
                }
            }
            Ok(_) => {}
        }
    }
    Errno::MessageTooLong.into()
}

/// As `to_ipv4_mapped()`, which takes 22 instructions to look at the bytes.
#[inline]
fn is_v4(addr: Ipv6Addr) -> bool {
    addr.to_bits() >> 32 == 0xffff
}

/// A message that was admitted.
struct Sending<'a> {
    sk: &'a Sock<Socket>,
    bound: &'a Bound,
    port: u16,
    len: u32,
}

impl Sending<'_> {
    #[inline(always)]
    fn hand_over(
        &self,
        route: Route,
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
        let mut connection = match route {
            Route::Loop(destination) => {
                let charge = charge.ok_or(EINVAL)?;
                return destination.send(sk, bound, msg, len, ops.memory, charge);
            }
            Route::Connection(connection) => connection,
        };
        let ports = (bound.port, port);
        let mut message = connection.message_from_user(ports, msg, len, ops, charge)?;
        while let Err(back) = connection.send(message) {
            // It was idle, and has just been forgotten.
            message = back;
            connection = find_connection(sk, bound, connection.key)?;
        }
        Ok(())
    }

    /// The same, with what control messages ask for. Sleeps.
    #[cold]
    #[inline(never)]
    fn hand_over_with(
        &self,
        control: Control,
        route: Route,
        msg: &mut SendMsg<'_>,
        charge: SndbufCharge,
    ) -> Result {
        let Self { sk, bound, .. } = *self;
        if matches!(route, Route::Loop(_)) && control.operation.is_some() {
            // There is no peer.
            return Err(Errno::NotSupported.into());
        }
        let memory = control.memory.map(|it| it.cookie(sk)).transpose()?;
        let (memory, fresh) = memory.map_or((None, None), |(it, fresh)| (Some(it), fresh));
        let mut charge = Some(charge);
        let prepare = |wish: OpRequest| {
            let is_silent = memory.is_none() && wish.is_silent(self.len);
            wish.prepare(sk, bound, charge.take_if(|_| is_silent))
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
            // Nobody knows of it.
            sk.memory.undo(key);
        }
        sent
    }
}

/// The memory of the sender that a message tells the receiver of.
enum MrArg {
    /// What the program has registered before.
    Known(Cookie),
    /// What it registers with the message.
    New(GetMr),
}

impl MrArg {
    /// Registers it if that was not done before, and returns the key to undo that. Fails with EINVAL if the socket does not
    /// have it. Sleeps.
    fn cookie(self, sk: &Sock<Socket>) -> Result<(Cookie, Option<RegionKey>)> {
        match self {
            Self::Known(cookie) if !sk.memory.has(cookie) => Err(EINVAL),
            Self::Known(cookie) => Ok((cookie, None)),
            Self::New(args) => rdma::register(sk, &args).map(|(it, key)| (it, Some(key))),
        }
    }
}

/// What the control messages ask for.
#[derive(Default)]
struct Control {
    memory: Option<MrArg>,
    operation: Option<OpRequest>,
}

impl Control {
    /// What it takes with a message on the loop transport, in bytes.
    fn size_beside(&self) -> usize {
        self.memory.as_ref().map_or(0, |_| MsgMeta::SIZE)
    }

    /// Each can be asked for once.
    fn set_memory(&mut self, told: MrArg) -> Result {
        match self.memory.replace(told) {
            None => Ok(()),
            Some(_) => Err(EINVAL),
        }
    }

    fn set_operation(&mut self, wish: OpRequest) -> Result {
        match self.operation.replace(wish) {
            None => Ok(()),
            Some(_) => Err(EINVAL),
        }
    }
}

/// Reads the control messages. Refuses what we cannot act on.
#[cold]
fn control_of(msg: &SendMsg<'_>) -> Result<Option<KBox<Control>>> {
    let mut control = Control::default();
    for cmsg in msg.cmsgs() {
        let cmsg = cmsg?;
        if cmsg.level != SOL_RDS {
            continue;
        }
        let atomic = |kind| -> Result<OpRequest> {
            let args = AtomicArgs::parse(kind, cmsg.data).ok_or(EINVAL)?;
            Ok(OpRequest::Atomic(args))
        };
        match cmsg.kind {
            CMSG_RDMA_DEST => {
                let bits = cmsg.data.first_chunk().ok_or(EINVAL)?;
                let cookie = Cookie::from_bits(u64::from_ne_bytes(*bits));
                control.set_memory(MrArg::Known(cookie))?;
            }
            CMSG_RDMA_MAP => {
                let args = cmsg.data.first_chunk().ok_or(EINVAL)?;
                control.set_memory(MrArg::New(GetMr::parse(args).ok_or(EINVAL)?))?;
            }
            CMSG_RDMA_ARGS => {
                let args = cmsg.data.first_chunk().ok_or(EINVAL)?;
                control.set_operation(OpRequest::Transfer(Transfer::parse(args)?))?;
            }
            CMSG_ATOMIC_FADD => control.set_operation(atomic(AtomicKind::FetchAdd)?)?,
            CMSG_ATOMIC_CSWP => control.set_operation(atomic(AtomicKind::CompareSwap)?)?,
            CMSG_MASKED_ATOMIC_FADD => {
                control.set_operation(atomic(AtomicKind::MaskedFetchAdd)?)?
            }
            CMSG_MASKED_ATOMIC_CSWP => {
                control.set_operation(atomic(AtomicKind::MaskedCompareSwap)?)?;
            }
            _ => return Err(EINVAL),
        }
    }
    if control.memory.is_none() && control.operation.is_none() {
        return Ok(None);
    }
    Ok(Some(KBox::new(control, GFP_KERNEL)?))
}

/// Where a message goes: the `last` one went that way.
fn route(
    sk: &Sock<Socket>,
    bound: &Bound,
    peer: &Peer,
    last: Option<CachedRoute>,
) -> Result<Route> {
    // What a node sends to the very address that it sends from needs no wire.
    if bound.transport == TransportId::Loop || bound.addr == peer.addr {
        if let Some(CachedRoute::Socket(target)) = last {
            if leads_to(&target, peer) {
                return Ok(Route::Loop(Destination::Socket(target)));
            }
        }
        let found = Destination::new(sk, peer);
        if let Destination::Socket(target) = &found {
            remember(sk, CachedRoute::Socket(target.clone()));
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
    if let Some(CachedRoute::Connection(last)) = last {
        if last.key == key && !last.has_ended() {
            return Ok(Route::Connection(last));
        }
    }
    Ok(Route::Connection(find_connection(sk, bound, key)?))
}

/// The connection with a key, which the socket remembers as its last one.
fn find_connection(sk: &Sock<Socket>, bound: &Bound, key: ConnKey) -> Result<Arc<Connection>> {
    let connection = sk.node.connection(key, Some(UserId::current()), || {
        // Not for each message: it takes a look at the routes.
        if is_broadcast(key.faddr) {
            return Err(EINVAL);
        }
        sk.node.pools(bound.addr, bound.scope)
    })?;
    remember(sk, CachedRoute::Connection(connection.clone()));
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
fn remember(sk: &Sock<Socket>, way: CachedRoute) {
    let before = sk.control.lock().last.replace(way);
    // It may hold the last reference, so it goes without the lock.
    drop(before);
}

/// Waits until the program may begin an operation: a peer that has refused others of its user is asked
/// for no more at a time.
///
/// Fails with EAGAIN if the call must not wait, and `poll(2)` tells when to come again; with
/// ETIMEDOUT after `SO_SNDTIMEO`, with ERESTARTSYS after a signal.
fn await_turn(sk: &Sock<Socket>, connection: &Connection, timeout: &mut Timeout) -> Result {
    let user = UserId::current();
    let mut held = false;
    while let Err(wait_ns) = connection.offenders.turn(user, sk.standing()) {
        if !core::mem::replace(&mut held, true) {
            sk.node.stats.inc(Counter::SendOpHeld);
        }
        if timeout.is_nonblocking() {
            sk.note_no_room();
            sk.node.call_again(sk, wait_ns)?;
            return Err(EAGAIN);
        }
        if !sk.pause(timeout, wait_ns)? {
            return Err(Errno::TimedOut.into());
        }
    }
    if sk.node.turns.remove(sk) {
        // A program may wait for that with what it wants of another peer.
        sk.wake_writers(poll::OUT);
    }
    Ok(())
}

/// Waits until the destination takes messages and the send buffer has room, and for other nodes the
/// share of the user, and takes `cost` bytes of it. `limit` is what the socket's was a moment ago.
///
/// Fails with ENOBUFS (congested) or EAGAIN (no room) if the call must not wait, with ETIMEDOUT
/// after `SO_SNDTIMEO`, with ERESTARTSYS after a signal, with ENOMEM.
fn admit(
    sk: &Sock<Socket>,
    route: &Route,
    port: u16,
    cost: usize,
    mut limit: usize,
    mut timeout: Timeout,
) -> Result<SndbufCharge> {
    let congested = || match route {
        Route::Loop(destination) => destination.is_congested(),
        Route::Connection(connection) => connection.is_congested(port),
    };
    let account = match route {
        Route::Loop(_) => None,
        Route::Connection(_) => sk.payer()?,
    };
    let take = |limit| SndbufCharge::take(sk, account.map(|it| &**it), cost, limit);
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
            if timeout.is_nonblocking() {
                sk.note_no_room();
            }
            // It may have ended before we were on the list.
            if congested() {
                if timeout.is_nonblocking() {
                    sk.node.stats.inc(Counter::CongSendError);
                    return Err(Errno::NoBufferSpace.into());
                }
                sk.node.stats.inc(Counter::CongSendBlocked);
                // Who is woken is off the list, whichever port it was that got room.
                if !sk.wait_to_write(&mut timeout, || !congested() || !waiters.has(sk, port))? {
                    return Err(Errno::TimedOut.into());
                }
                continue;
            }
        }
        let full = match take(limit) {
            Ok(charge) => return Ok(charge),
            Err(full) => full,
        };
        // It may have been changed since.
        limit = sk.send_limit();
        let share = account.filter(|_| full == NoTicket::Share);
        match share {
            None => sk.node.stats.inc(Counter::SendQueueFull),
            Some(share) => {
                sk.node.stats.inc(Counter::SendShareFull);
                sk.await_share(share)?;
            }
        }
        if timeout.is_nonblocking() {
            sk.note_no_room();
            // There may be room since, and no signal comes then.
            match take(limit) {
                // It was the buffer before: wait for the share.
                Err(NoTicket::Share) if share.is_none() => continue,
                charge => return charge.map_err(|_| EAGAIN),
            }
        }
        let ready = || match share {
            None => sk.is_writable(),
            // Who is woken is off the list.
            Some(share) => share.has_room(&sk.node) || !share.waiters.has(sk, 0),
        };
        if !sk.wait_to_write(&mut timeout, ready)? {
            return Err(Errno::TimedOut.into());
        }
    }
}
