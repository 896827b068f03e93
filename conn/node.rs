// SPDX-License-Identifier: GPL-2.0

//! Everything that the sockets of this node share.

use super::{
    accounts::Accounts,
    connection::Connection,
    key::ConnKey,
    table::{Bounds, Full, Positions, Table, TableSlot},
    transport::{Mapped, OnRelease, OpKind, RemoteMemory, Transport},
    turns::Turns,
    BindTable, Counter, Stats, Tunables,
};
use crate::cong;
use crate::kapi::{
    errno::Errno,
    net::{IpBits, Net, Sock},
    pin::PinnedMemory,
    print::{pr_attempt_ratelimited, pr_info_ratelimited},
    rdma::Access,
    sync::{cancel, cancel_delayed, new_spinlock_bh, OwnedQueue, Peek, SpinLockBh},
    task::UserId,
    time, trace,
};
use crate::msg::{Bound, MsgMeta, Peer, PongBudget, Socket, TransportId};
use crate::proto::{idle::IdleTimeouts, rcvbuf, tx::first_sequence};
use crate::recv_pool::Pools;
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    rbtree::CursorMut,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    workqueue::DelayedWork,
};

/// Connections that are looked at from one time to the next that the table is locked.
const BATCH: usize = 32;

/// The connections of this node.
pub(super) struct NodeConnections {
    pub(super) tree: Table<Arc<Connection>>,
    /// What is left of some that were forgotten.
    pub(super) positions: Positions,
    /// The least number that a new connection may begin with: forgotten ones had those before it.
    pub(super) begin_at: u64,
    /// The module is being unloaded: no new ones.
    pub(super) closed: bool,
}

/// Why there is no connection.
pub(crate) enum NoConnection {
    /// There are too many. Counted, and in the log.
    Full,
    Failed(Error),
}

impl From<Error> for NoConnection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a system call returns.
impl From<NoConnection> for Error {
    fn from(why: NoConnection) -> Error {
        match why {
            // Not ENOBUFS, which says that `poll(2)` will tell when there is room.
            NoConnection::Full => ENOMEM,
            NoConnection::Failed(error) => error,
        }
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there are too many"),
            Self::Failed(error) => f.write_fmt(fmt!("{:?}", error)),
        }
    }
}

impl NodeConnections {
    /// The first connection of a local address, to the peer address if one is given, in the order of the
    /// tree, behind the one with the key `after` if there is one given.
    fn first_of(
        &mut self,
        net: Net,
        laddr: Ipv6Addr,
        faddr: Option<Ipv6Addr>,
        after: Option<&ConnKey>,
    ) -> Option<CursorMut<'_, ConnKey, Arc<Connection>>> {
        let start = match after {
            Some(after) => *after,
            None => ConnKey::least_of(net, laddr, faddr),
        };
        let cursor = self.tree.cursor_lower_bound_mut(&start)?;
        let cursor = if after == Some(cursor.current().0) {
            cursor.move_next()?
        } else {
            cursor
        };
        let key = cursor.current().0;
        key.is_of(net, laddr, faddr).then_some(cursor)
    }
}

/// This node: made when the module is loaded, gone when nothing uses it any more.
#[pin_data]
pub(crate) struct Node {
    pub(crate) stats: Stats,
    pub(crate) tunables: Arc<Tunables>,
    pub(crate) binds: BindTable,
    /// The congestion maps of the addresses of this node.
    pub(crate) cong: cong::Registry,
    #[pin]
    pub(super) connections: SpinLockBh<NodeConnections>,
    /// How long connections may be idle.
    pub(super) idle_timeouts: IdleTimeouts,
    /// How much may wait to be read at a socket in any case, in bytes.
    pub(crate) unread_patience: u64,
    /// What users take of the memory that all share.
    pub(crate) accounts: Arc<Accounts>,
    /// Sockets that are told when to come again.
    #[pin]
    pub(crate) turns: Turns,
    /// The answers to pings that wait for peers.
    pub(super) pong_budget: PongBudget,
    /// Sockets that want to know of the receive path.
    tracing: Atomic<u32>,
    #[pin]
    pub(super) looks: DelayedWork<Node, 0>,
    #[pin]
    pub(super) listening: DelayedWork<Node, 1>,
    #[pin]
    pub(super) calling: DelayedWork<Node, 2>,
    /// Runs those who look at all connections. Nothing waits there for a peer.
    pub(super) queue: Arc<OwnedQueue>,
    /// Runs the workers of connections.
    pub(super) workers: Arc<OwnedQueue>,
    /// The transport to other nodes.
    pub(crate) ib: Option<Arc<dyn Transport>>,
}

impl Node {
    /// `memory` is what the machine has, in bytes. May sleep.
    pub(crate) fn new(
        ib: Option<Arc<dyn Transport>>,
        queue: Arc<OwnedQueue>,
        workers: Arc<OwnedQueue>,
        tunables: Arc<Tunables>,
        bounds: Bounds,
        idle_timeouts: IdleTimeouts,
        memory: u64,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                stats: Stats::new()?,
                tunables,
                binds: BindTable::new(memory)?,
                cong: cong::Registry::new()?,
                connections <- new_spinlock_bh!(
                    NodeConnections {
                        tree: Table::new(bounds),
                        positions: Positions::new(bounds),
                        begin_at: 1,
                        closed: false,
                    },
                    "Node::connections"
                ),
                queue,
                workers,
                idle_timeouts,
                unread_patience: rcvbuf::patience(memory),
                accounts: Accounts::new()?,
                turns <- Turns::new(),
                pong_budget: PongBudget::new()?,
                tracing: Atomic::new(0),
                looks <- kernel::new_delayed_work!("Node::looks"),
                listening <- kernel::new_delayed_work!("Node::listening"),
                calling <- kernel::new_delayed_work!("Node::calling"),
                ib,
            }),
            GFP_KERNEL,
        )
    }

    /// Whether the RDMA transport is there at all.
    pub(crate) fn has_ib(&self) -> bool {
        self.ib.is_some()
    }

    /// The most bytes that a pool of buffers may take. Any context.
    pub(crate) fn pool_limit(&self) -> usize {
        self.ib.as_ref().map_or(usize::MAX, |ib| ib.pool_limit())
    }

    /// Whether an RDMA device has a local address. May sleep, unless that is known.
    ///
    /// Fails with ENOMEM.
    #[inline]
    pub(crate) fn has_ib_address(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool> {
        match &self.ib {
            Some(ib) => ib.claims(net, addr, scope),
            None => Ok(false),
        }
    }

    /// The stamps of a message that is coming in, if any socket may ask for them. Any context.
    #[inline]
    pub(crate) fn begin_stamps(&self) -> Option<KBox<MsgMeta>> {
        if self.tracing.peek() == 0 {
            return None;
        }
        MsgMeta::with_stamps()
    }

    /// A socket did not ask for stamps if `idle`, and does not if `idle_now`. Any context.
    pub(crate) fn note_tracing(&self, idle: bool, idle_now: bool) {
        match (idle, idle_now) {
            (true, false) => drop(self.tracing.fetch_add(1, Relaxed)),
            (false, true) => drop(self.tracing.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// The connection between two addresses, made if there is none yet: then with the memory that
    /// `pools` finds, for a program of `user` if there is one. May sleep.
    ///
    /// Fails if there are too many, with the error of `pools`, with ENETDOWN while the module is being
    /// unloaded, with ENOMEM.
    pub(crate) fn connection(
        self: &Arc<Self>,
        key: ConnKey,
        user: Option<UserId>,
        pools: impl FnOnce() -> Result<Arc<Pools>>,
    ) -> Result<Arc<Connection>, NoConnection> {
        let connections = self.connections.lock();
        if let Some(connection) = connections.tree.get(&key) {
            return Ok(connection.clone());
        }
        // Whoever is refused is to cost little.
        let room = connections.tree.has_room(&key, user);
        drop(connections);
        room.map_err(|full| self.refuse(&key, user, full))?;

        let fresh = Connection::new(key, self.clone(), user, pools()?)?;
        let place = TableSlot::new()?;
        let mut connections = self.connections.lock();
        if connections.closed {
            drop(connections);
            return Err(Error::from(Errno::NetDown).into());
        }
        if let Some(connection) = connections.tree.get(&key) {
            // Another sender was faster. Ours, never used, goes after the lock.
            let connection = connection.clone();
            drop(connections);
            return Ok(connection);
        }
        let inserted = connections.tree.insert(key, fresh.clone(), user, place);
        if inserted.is_ok() {
            let position = connections.positions.remove(&key);
            let first = first_sequence(time::real_ns()).max(connections.begin_at);
            fresh.begin(first, position);
        }
        drop(connections);
        inserted.map_err(|full| self.refuse(&key, user, full))?;
        self.look_later();
        self.listen_later();
        Ok(fresh)
    }

    /// Counts and logs that there is to be no connection with this key, for a program of `user` if
    /// there is one.
    fn refuse(&self, key: &ConnKey, user: Option<UserId>, full: Full) -> NoConnection {
        self.stats.inc(Counter::ConnRefusedLimit);
        trace::dropped(&key.traced(), Counter::ConnRefusedLimit.name(), 1);
        match user {
            Some(_) => pr_attempt_ratelimited!("{}: refused, {}\n", key, full),
            None => pr_info_ratelimited!("{}: refused, {}\n", key, full),
        }
        NoConnection::Full
    }

    /// Names and values for `RDS_INFO_COUNTERS`, in order. May sleep.
    pub(crate) fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let pool_bytes = self.ib.as_ref().map_or(0, |ib| ib.pool_bytes());
        self.stats
            .iter(pool_bytes)
            .for_each(|(name, value)| each(name, value));
        if let Some(ib) = &self.ib {
            ib.for_each_counter(each);
        }
    }

    /// The pools for messages that a local address sends. May sleep.
    ///
    /// Fails with ENETUNREACH if there is no transport to other nodes, with ENOMEM.
    pub(crate) fn pools(&self, addr: Ipv6Addr, scope: u32) -> Result<Arc<Pools>> {
        let ib = self.ib.as_ref().ok_or(Errno::NetUnreachable)?;
        ib.pools(addr, scope)
    }

    /// Lets peers of a local address use memory of a program. Sleeps. Fails with EOPNOTSUPP if there is no transport
    /// that can do that, and as [`Transport::register`] does.
    pub(crate) fn register(
        &self,
        bound: &Bound,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>> {
        let ib = self.ib.as_ref().ok_or(Errno::NotSupported)?;
        ib.register(bound.addr, bound.scope, memory, access)
    }

    /// Up to an address that is a multiple of so many bytes, the device of a local address takes memory of a program in one
    /// piece, for an operation of its own. Sleeps. Fails as [`Self::register`] does.
    pub(crate) fn max_contiguous_map(&self, bound: &Bound) -> Result<u64> {
        let ib = self.ib.as_ref().ok_or(Errno::NotSupported)?;
        ib.max_contiguous_map(bound.addr, bound.scope)
    }

    /// Has the device of a local address see memory of a program, for an operation of its own. Sleeps. Fails as
    /// [`Self::register`] does.
    pub(crate) fn map(
        &self,
        bound: &Bound,
        memory: PinnedMemory,
        needs: OpKind,
        then: Arc<dyn OnRelease>,
    ) -> Result<Mapped> {
        let ib = self.ib.as_ref().ok_or(Errno::NotSupported)?;
        ib.map(bound.addr, bound.scope, memory, needs, then)
    }

    /// Waits until the device of a local address has given back the memory that was dropped before. Sleeps. Fails as
    /// [`Transport::settle_memory`] does.
    pub(crate) fn settle_memory(&self, bound: &Bound) -> Result {
        match &self.ib {
            Some(ib) => ib.settle_memory(bound.addr, bound.scope),
            None => Ok(()),
        }
    }

    /// Calls `each` for all connections that are there all the time, without a lock, until it fails. May
    /// sleep.
    pub(crate) fn try_for_each<E>(
        &self,
        mut each: impl FnMut(&Arc<Connection>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = None;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut slots = batch.iter_mut();
            next = self
                .connections
                .lock()
                .tree
                .walk(next, BATCH, |connection| {
                    if let Some(slot) = slots.next() {
                        *slot = Some(connection.clone());
                    }
                });
            batch.iter().flatten().try_for_each(&mut each)?;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    /// A port of this node is full, or not any more: marks it in the map of its address. Any context.
    ///
    /// Fails with ENOMEM, and counts that, if the port is full and there is no memory for the map.
    pub(crate) fn mark_port(&self, net: Net, bound: &Bound, full: bool) -> Result {
        if bound.transport != TransportId::Loop {
            self.cong
                .mark(place_of(net, bound), bound.port, full)
                .inspect_err(|_| self.note_lost_mark(bound))?;
        }
        trace::congestion(bound.addr, bound.port, full);
        Ok(())
    }

    /// No peer hears that a port is full.
    #[cold]
    fn note_lost_mark(&self, bound: &Bound) {
        let reason = Counter::CongUpdateFailed;
        self.stats.inc(reason);
        trace::dropped(&trace::Conn::local(bound.addr), reason.name(), 1);
    }

    /// The map of an address has changed: sends it to all peers. Any context, no lock held.
    ///
    /// A connection that comes or comes up meanwhile sends it by itself.
    pub(crate) fn send_congestion_maps(&self, net: Net, bound: &Bound) {
        if bound.transport == TransportId::Loop {
            return;
        }
        self.walk_of(net, bound.addr, None, |connection| {
            let same = connection.key.local_scope() == bound.scope;
            if same && connection.send_congestion_map() {
                self.stats.inc(Counter::CongUpdateQueued);
            }
            true
        });
    }

    /// A socket is being closed: what it sent and no peer has acknowledged is forgotten. That is most
    /// likely on one connection, which is looked at first. May sleep.
    pub(crate) fn cancel_sends(
        &self,
        sk: &Sock<Socket>,
        bound: &Bound,
        likely: Option<&Arc<Connection>>,
    ) {
        if !sk.has_unacknowledged() {
            return;
        }
        if let Some(connection) = likely {
            connection.cancel_closed(sk, bound.port);
            if !sk.has_unacknowledged() {
                return;
            }
        }
        self.walk_of(sk.net, bound.addr, None, |connection| {
            if !likely.is_some_and(|first| Arc::ptr_eq(first, connection)) {
                connection.cancel_closed(sk, bound.port);
            }
            sk.has_unacknowledged()
        });
    }

    /// Forgets what a socket sent to an address and port and no peer has acknowledged; a scope of 0 means
    /// any. May sleep.
    pub(crate) fn cancel_sent_to(&self, sk: &Sock<Socket>, bound: &Bound, to: &Peer) {
        if !sk.has_unacknowledged() {
            return;
        }
        self.walk_of(sk.net, bound.addr, Some(to.addr), |connection| {
            if to.scope == 0 || connection.key.scope == to.scope {
                connection.cancel(sk, bound.port, to.port);
            }
            sk.has_unacknowledged()
        });
    }

    /// Resets the connection between two addresses with a type of service, on any link, or without a peer
    /// address all connections of the local one. They come back by themselves. May sleep.
    pub(crate) fn reset_connections(
        &self,
        net: Net,
        laddr: Ipv6Addr,
        faddr: Option<Ipv6Addr>,
        tos: u8,
    ) {
        self.walk_of(net, laddr, faddr, |connection| {
            if faddr.is_none() || connection.key.tos == tos {
                connection.begin_reset();
            }
            true
        });
    }

    /// Calls `each` for the connections of a local address that are there all the time, to the peer address if one is
    /// given, one by one without a lock, as long as it returns true. In any context where `each` may be called: who drops
    /// a connection that was forgotten meanwhile does not sleep, as it has no endpoint.
    fn walk_of(
        &self,
        net: Net,
        laddr: Ipv6Addr,
        faddr: Option<Ipv6Addr>,
        mut each: impl FnMut(&Arc<Connection>) -> bool,
    ) {
        let mut last: Option<ConnKey> = None;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut connections = self.connections.lock();
            let mut next = connections.first_of(net, laddr, faddr, last.as_ref());
            for slot in &mut batch {
                let Some(cursor) = next else {
                    break;
                };
                *slot = Some(cursor.current().1.clone());
                next = cursor.move_next();
                next = next.filter(|cursor| cursor.current().0.is_of(net, laddr, faddr));
            }
            let more = next.is_some();
            drop(connections);
            for connection in batch.iter().flatten() {
                last = Some(connection.key);
                if !each(connection) {
                    return;
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Ends all connections, for good. The listeners are gone, and no socket is open. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        let mut connections = self.connections.lock();
        connections.closed = true;
        let (tree, counts) = connections.tree.take();
        drop(connections);
        drop(counts);
        cancel_delayed::<_, 0>(self);
        cancel_delayed::<_, 1>(self);
        cancel_delayed::<_, 2>(self);
        for connection in tree.values() {
            connection.begin_stop();
        }
        self.workers.flush();
        for connection in tree.values() {
            // The worker has seen the end: the endpoint is gone, and nobody wakes the worker or sets
            // the timer again. What is still queued goes.
            cancel_delayed::<_, 1>(connection);
            cancel_delayed::<_, 2>(connection);
            cancel::<_, 0>(connection);
        }
        // Here the connections go, and what they have queued.
    }
}

/// The address that has the port of a socket in its map.
fn place_of(net: Net, bound: &Bound) -> cong::Place {
    cong::Place {
        net,
        addr: bound.addr,
        scope: bound.scope,
    }
}
