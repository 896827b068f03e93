// SPDX-License-Identifier: GPL-2.0

//! State that the sockets of this node share.

use super::{
    accounts::Accounts,
    connection::Connection,
    key::ConnKey,
    table::{Bounds, ConnTable, Full, Positions, TableSlot},
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
    time,
};
use crate::msg::{Bound, MsgMeta, Peer, PongBudget, Socket, TransportId};
use crate::proto::{idle::IdleTimeouts, rcvbuf, tx::first_sequence};
use crate::recv_pool::Pools;
use crate::trace;
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

/// Maximum number of connections that are visited each time the table is locked.
const BATCH: usize = 32;

/// Connections of this node.
pub(super) struct NodeConnections {
    pub(super) tree: ConnTable<Arc<Connection>>,
    /// Receive positions of connections that were forgotten.
    pub(super) positions: Positions,
    /// Lowest sequence number with which a new connection may begin. Forgotten ones have used those
    /// before it.
    pub(super) begin_at: u64,
    /// The module is being unloaded, so no connection is created.
    pub(super) closed: bool,
}

/// Reason why there is no connection.
pub(crate) enum NoConnection {
    /// A limit on the number of connections is reached. Counted and logged.
    Full,
    Failed(Error),
}

impl From<Error> for NoConnection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Converts to the error of a system call.
impl From<NoConnection> for Error {
    fn from(why: NoConnection) -> Error {
        match why {
            // Not `ENOBUFS`: after that error programs expect `poll(2)` to report when there is
            // room.
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
    /// Returns the first connection of a local address, in the order of the tree. Optionally
    /// restricted to a peer address, and to connections behind the key `after`.
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

/// This node. Created when the module is loaded, and dropped when nothing uses it any more.
///
/// # Context
///
/// Methods without this section are for process context and may sleep, except
/// [`Self::pool_limit`], [`Self::begin_stamps`] and [`Self::note_tracing`], which have no
/// restriction.
#[pin_data]
pub(crate) struct Node {
    pub(crate) stats: Stats,
    pub(crate) tunables: Arc<Tunables>,
    pub(crate) binds: BindTable,
    /// Congestion maps of the addresses of this node.
    pub(crate) cong: cong::Registry,
    #[pin]
    pub(super) connections: SpinLockBh<NodeConnections>,
    /// Limits on idle times of connections.
    pub(super) idle_timeouts: IdleTimeouts,
    /// Bytes of unread messages that a socket may have in any case.
    pub(crate) unread_patience: u64,
    /// Charges of users for shared memory.
    pub(crate) accounts: Arc<Accounts>,
    /// Sockets that have to wait before their next operation.
    #[pin]
    pub(crate) turns: Turns,
    /// Limit on answers to pings that wait for peers.
    pub(super) pong_budget: PongBudget,
    /// Number of sockets that request timestamps of the receive path.
    tracing: Atomic<u32>,
    #[pin]
    pub(super) looks: DelayedWork<Node, 0>,
    #[pin]
    pub(super) listening: DelayedWork<Node, 1>,
    #[pin]
    pub(super) calling: DelayedWork<Node, 2>,
    /// Runs the periodic checks of all connections. Its work never waits for a peer.
    pub(super) queue: Arc<OwnedQueue>,
    /// Runs the workers of connections.
    pub(super) workers: Arc<OwnedQueue>,
    /// Transport to other nodes.
    pub(crate) ib: Option<Arc<dyn Transport>>,
}

impl Node {
    /// Creates the node. `memory` is the size of its memory in bytes.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
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
                        tree: ConnTable::new(bounds),
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

    /// Returns `true` if the RDMA transport is available.
    pub(crate) fn has_ib(&self) -> bool {
        self.ib.is_some()
    }

    /// Returns the maximum size of each pool, in bytes.
    pub(crate) fn pool_limit(&self) -> usize {
        self.ib.as_ref().map_or(usize::MAX, |ib| ib.pool_limit())
    }

    /// Returns `true` if an RDMA device has a local address.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep, unless the answer is cached.
    #[inline]
    pub(crate) fn has_ib_address(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool> {
        match &self.ib {
            Some(ib) => ib.claims(net, addr, scope),
            None => Ok(false),
        }
    }

    /// Returns timestamps for an arriving message, if a socket may request them. `None` also if
    /// there is no memory.
    #[inline]
    pub(crate) fn begin_stamps(&self) -> Option<KBox<MsgMeta>> {
        if self.tracing.peek() == 0 {
            return None;
        }
        MsgMeta::with_stamps()
    }

    /// Counts a socket whose request for timestamps changes. `idle` means that it had none,
    /// `idle_now` that it has none now.
    pub(crate) fn note_tracing(&self, idle: bool, idle_now: bool) {
        match (idle, idle_now) {
            (true, false) => drop(self.tracing.fetch_add(1, Relaxed)),
            (false, true) => drop(self.tracing.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Returns the connection between two addresses, or creates it for a program of `user` if there
    /// is one. A new connection uses the memory that `pools` returns.
    ///
    /// # Errors
    ///
    /// - [`NoConnection::Full`] if there are too many connections.
    /// - `ENETDOWN` while the module is being unloaded.
    /// - `ENOMEM`
    /// - Any error of `pools`.
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
        // Checked before anything is allocated, so that refusals are cheap.
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
            // Another sender was faster. `fresh` was never used, and is dropped without the lock.
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

    /// Counts and logs that a connection with this key was refused, to a program of `user` if there
    /// is one.
    fn refuse(&self, key: &ConnKey, user: Option<UserId>, full: Full) -> NoConnection {
        self.stats.inc(Counter::ConnRefusedLimit);
        trace::dropped(&key.traced(), Counter::ConnRefusedLimit.name(), 1);
        match user {
            Some(_) => pr_attempt_ratelimited!("{}: refused, {}\n", key, full),
            None => pr_info_ratelimited!("{}: refused, {}\n", key, full),
        }
        NoConnection::Full
    }

    /// Calls `each` with the names and values for `RDS_INFO_COUNTERS`, in order.
    pub(crate) fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let pool_bytes = self.ib.as_ref().map_or(0, |ib| ib.pool_bytes());
        self.stats
            .iter(pool_bytes)
            .for_each(|(name, value)| each(name, value));
        if let Some(ib) = &self.ib {
            ib.for_each_counter(each);
        }
    }

    /// Returns the pools for messages from a local address.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH` if there is no transport to other nodes.
    /// - `ENOMEM`
    pub(crate) fn pools(&self, addr: Ipv6Addr, scope: u32) -> Result<Arc<Pools>> {
        let ib = self.ib.as_ref().ok_or(Errno::NetUnreachable)?;
        ib.pools(addr, scope)
    }

    /// Registers memory of a program for access by peers of a local address.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if there is no transport that can do that.
    /// - Those of [`Transport::register`].
    pub(crate) fn register(
        &self,
        bound: &Bound,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>> {
        let ib = self.ib.as_ref().ok_or(Errno::NotSupported)?;
        ib.register(bound.addr, bound.scope, memory, access)
    }

    /// Returns the boundary (power of two, in bytes) that one local buffer must not cross, on the
    /// device of a local address.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if there is no transport that can do that.
    /// - Those of [`Transport::max_contiguous_map`].
    pub(crate) fn max_contiguous_map(&self, bound: &Bound) -> Result<u64> {
        let ib = self.ib.as_ref().ok_or(Errno::NotSupported)?;
        ib.max_contiguous_map(bound.addr, bound.scope)
    }

    /// Maps memory of a program on the device of a local address, for a local operation.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if there is no transport that can do that.
    /// - Those of [`Transport::map`].
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

    /// Waits until the device of a local address has released all memory that was dropped before.
    ///
    /// # Errors
    ///
    /// - Those of [`Transport::settle_memory`].
    pub(crate) fn settle_memory(&self, bound: &Bound) -> Result {
        match &self.ib {
            Some(ib) => ib.settle_memory(bound.addr, bound.scope),
            None => Ok(()),
        }
    }

    /// Calls `each`, without a lock, for all connections, until it fails. Connections that are
    /// added or removed meanwhile may be missed.
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

    /// Marks a port of this node in the map of its address: full, or not any more.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if the port is full and there is no memory for the map. This is counted.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn mark_port(&self, net: Net, bound: &Bound, full: bool) -> Result {
        if bound.transport != TransportId::Loop {
            self.cong
                .mark(place_of(net, bound), bound.port, full)
                .inspect_err(|_| self.note_lost_mark(bound))?;
        }
        trace::congestion(bound.addr, bound.port, full);
        Ok(())
    }

    /// Counts and traces that no peer is notified of a full port.
    #[cold]
    fn note_lost_mark(&self, bound: &Bound) {
        let reason = Counter::CongUpdateFailed;
        self.stats.inc(reason);
        trace::dropped(&trace::Conn::local(bound.addr), reason.name(), 1);
    }

    /// Sends the map of an address, which has changed, to all peers. A connection that comes up
    /// meanwhile sends it by itself.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, no lock held.
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

    /// Cancels the unacknowledged messages of a socket that is being closed. They are most likely
    /// on the connection `likely`, which is therefore the first.
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

    /// Cancels the unacknowledged messages of a socket to an address and port. Scope 0 matches any.
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

    /// Resets the connections between two addresses with a type of service, of any scope. Without a
    /// peer address resets all connections of the local address. They reconnect by themselves.
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

    /// Calls `each`, without a lock, for the connections of a local address, until it returns
    /// `false`. Optionally restricted to a peer address. Connections that are added or removed
    /// meanwhile may be missed.
    ///
    /// # Context
    ///
    /// Those of `each`. Dropping a connection that was forgotten meanwhile does not sleep, because
    /// it has no endpoint.
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

    /// Ends all connections for good. The caller has closed the listeners, and there is no open
    /// socket.
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
            // The worker has handled the stop. There is no endpoint, and nothing queues the worker
            // or starts the timer again. Work that is still queued is cancelled.
            cancel_delayed::<_, 1>(connection);
            cancel_delayed::<_, 2>(connection);
            cancel::<_, 0>(connection);
        }
        // The connections are dropped here, with their queued messages.
    }
}

/// Returns the address in whose map the port of a socket is.
fn place_of(net: Net, bound: &Bound) -> cong::Place {
    cong::Place {
        net,
        addr: bound.addr,
        scope: bound.scope,
    }
}
