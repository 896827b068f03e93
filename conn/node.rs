// SPDX-License-Identifier: GPL-2.0

//! This node: the state of its sockets, and its connections.

use super::{
    connection::Connection,
    key::ConnKey,
    positions::Positions,
    quota::NodeLimits,
    retry_timers::RetryTimers,
    socket_budget::SocketSlot,
    table::{
        Bounds,
        ConnTable,
        Full,
        TableSlot, //
    },
    transports::Transports,
    Tunables, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::{
            Net,
            NetRef,
            Sock, //
        },
        print::{
            pr_attempt_ratelimited,
            pr_info_ratelimited, //
        },
        sync::{
            cancel,
            cancel_delayed,
            flush,
            new_spinlock_bh,
            OwnedQueue,
            SpinLockBh, //
        },
        task::UserId,
        time,
        walk_in_batches, //
    },
    proto::{
        idle::IdleTimeouts,
        mprds::PathCount,
        tx::first_sequence, //
    },
    recv_pool::Pools,
    socket::{
        Bound,
        NetState,
        Peer,
        SharedState,
        Socket,
        TransportId, //
    },
    stats::Counter,
    trace, //
};
use core::{
    convert::Infallible,
    net::Ipv6Addr,
    ops::Deref, //
};
use kernel::{
    fmt,
    prelude::*,
    rbtree::CursorMut,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::DelayedWork, //
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
    /// The module or the network namespace ends, so no connection is created.
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
            Self::Full => f.write_str("too many connections"),
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

/// This node: the state of its sockets, to which it dereferences, and their connections. Created
/// when the module is loaded, and dropped when nothing uses it any more.
///
/// # Context
///
/// Methods without this section are for process context and may sleep.
#[pin_data]
pub(crate) struct Node {
    /// The network namespace of the addresses.
    pub(crate) net: NetRef,
    pub(crate) tunables: Arc<Tunables>,
    pub(super) limits: NodeLimits,
    #[pin]
    pub(super) connections: SpinLockBh<NodeConnections>,
    /// Limits on idle times of connections.
    pub(super) idle_timeouts: IdleTimeouts,
    /// Sockets that have to wait before their next operation.
    #[pin]
    pub(crate) retry_timers: RetryTimers,
    #[pin]
    pub(super) idle_work: DelayedWork<Node, 0>,
    #[pin]
    pub(super) listening: DelayedWork<Node, 1>,
    #[pin]
    pub(super) retry_work: DelayedWork<Node, 2>,
    #[pin]
    pub(super) cong_work: DelayedWork<Node, 3>,
    /// State of the sockets.
    net_state: NetState,
    /// Runs the workers of connections.
    pub(super) workers: Arc<OwnedQueue>,
    pub(crate) transports: Transports,
}

impl Node {
    /// Creates the node of a network namespace.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    pub(crate) fn new(
        net: NetRef,
        shared: Arc<SharedState>,
        transports: Transports,
        workers: Arc<OwnedQueue>,
        tunables: Arc<Tunables>,
        limits: NodeLimits,
        idle_timeouts: IdleTimeouts,
    ) -> Result<Arc<Self>> {
        let (bounds, maps) = (limits.bounds, limits.maps.of(net.owner().is_some()));
        let kept = Bounds {
            all: limits.positions,
            ..bounds
        };
        Arc::pin_init(
            try_pin_init!(Self {
                net,
                tunables,
                connections <- new_spinlock_bh!(
                    NodeConnections {
                        tree: ConnTable::new(bounds),
                        positions: Positions::new(kept),
                        begin_at: 1,
                        closed: false,
                    },
                    "Node::connections"
                ),
                net_state: NetState::new(shared, maps)?,
                workers,
                idle_timeouts,
                retry_timers <- RetryTimers::new(),
                idle_work <- kernel::new_delayed_work!("Node::idle_work"),
                listening <- kernel::new_delayed_work!("Node::listening"),
                retry_work <- kernel::new_delayed_work!("Node::retry_work"),
                cong_work <- kernel::new_delayed_work!("Node::cong_work"),
                transports,
                limits,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the connection between two addresses, or creates it for a program of `user` if there
    /// is one. [`UserId::PEERS`] stands for a peer over TCP. A new connection uses the memory that
    /// `pools` returns.
    ///
    /// # Errors
    ///
    /// - [`NoConnection::Full`] if there are too many connections.
    /// - `ENETDOWN` while the module or the network namespace ends.
    /// - `ENOMEM`
    /// - Any error of `pools`.
    pub(crate) fn connection(
        self: &Arc<Self>,
        key: ConnKey,
        user: Option<UserId>,
        pools: impl FnOnce() -> Result<Arc<Pools>>,
    ) -> Result<Arc<Connection>, NoConnection> {
        self.connection_or_path(key, user, pools, None)
    }

    /// Returns another path of the connection with the path `first`, or creates it.
    ///
    /// # Errors
    ///
    /// Those of [`Self::connection`], and `ENETDOWN` if the first path has ended.
    pub(crate) fn path(
        self: &Arc<Self>,
        first: &Arc<Connection>,
        path: u8,
    ) -> Result<Arc<Connection>, NoConnection> {
        let key = ConnKey { path, ..first.key };
        let transport = self.transports.get(key.transport);
        let pools = || transport.ok_or(ENODEV)?.pools(key.laddr, key.scope);
        let path = self.connection_or_path(key, first.creator, pools, Some(first))?;
        // The peer is no stranger on this path either.
        if first.path.has_answered.load(Relaxed) {
            path.note_answer();
        }
        Ok(path)
    }

    fn connection_or_path(
        self: &Arc<Self>,
        key: ConnKey,
        user: Option<UserId>,
        pools: impl FnOnce() -> Result<Arc<Pools>>,
        first: Option<&Arc<Connection>>,
    ) -> Result<Arc<Connection>, NoConnection> {
        let connections = self.connections.lock();
        if let Some(connection) = connections.tree.get(&key) {
            return Ok(connection.clone());
        }
        // Checked before anything is allocated, so that refusals are cheap.
        let room = connections.tree.has_room(&key, user);
        drop(connections);
        let is_of_user = self.is_of_user();
        let room = room.and_then(|()| self.limits.has_room(&key, user, is_of_user));
        room.map_err(|full| self.refuse(&key, user, full))?;

        let fresh = Connection::new(key, self.clone(), user, pools()?, first.cloned())?;
        let place = TableSlot::new()?;
        let charge = match &fresh.quota_charge {
            Some(charge) => Some((charge, TableSlot::new()?)),
            None => None,
        };
        let mut connections = self.connections.lock();
        // A path that was forgotten gets no other ones.
        if connections.closed || first.is_some_and(|it| it.has_ended()) {
            drop(connections);
            return Err(Error::from(Errno::NetDown).into());
        }
        if let Some(connection) = connections.tree.get(&key) {
            // Another sender was faster. `fresh` was never used, and is dropped without the lock.
            let connection = connection.clone();
            drop(connections);
            return Ok(connection);
        }
        let charged = charge.map_or(Ok(()), |(charge, place)| charge.charge(place));
        let add = || connections.tree.insert(key, fresh.clone(), user, place);
        // Without room in the table, the drop of `fresh` ends the charge.
        let inserted = charged.and_then(|()| add());
        if inserted.is_ok() {
            let position = connections.positions.remove(&key);
            let sequence = first_sequence(time::real_ns()).max(connections.begin_at);
            fresh.path.begin(sequence, position);
            if let Some(set) = first.and_then(|it| it.paths.as_deref()) {
                set.set(key.path, fresh.clone());
            }
        }
        drop(connections);
        inserted.map_err(|full| self.refuse(&key, user, full))?;
        self.arm_idle_work();
        self.listen_later();
        Ok(fresh)
    }

    /// Returns the connection with this key, if there is one.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn find_connection(&self, key: &ConnKey) -> Option<Arc<Connection>> {
        self.connections.lock().tree.get(key).cloned()
    }

    /// Forgets the receive positions of the other paths of a connection: its peer has restarted.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn forget_positions_of_paths(&self, first: &ConnKey) {
        let mut connections = self.connections.lock();
        for path in (1..).take_while(|path| PathCount::Eight.has(*path)) {
            connections.positions.remove(&ConnKey { path, ..*first });
        }
    }

    /// Returns `true` if forgotten paths besides the first one have left positions.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn has_positions_of_paths(&self, first: &ConnKey) -> bool {
        self.connections.lock().positions.has_others(first)
    }

    /// Returns `true` if there is a connection with this key, or room for it. A refusal is not
    /// counted.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn has_place(&self, key: &ConnKey, user: Option<UserId>) -> bool {
        let connections = self.connections.lock();
        let tree = &connections.tree;
        if tree.get(key).is_some() {
            return true;
        }
        let has_room = tree.has_room(key, user).is_ok();
        drop(connections);
        let is_of_user = self.is_of_user();
        has_room && self.limits.has_room(key, user, is_of_user).is_ok()
    }

    /// Returns `true` if the network namespace belongs to a user, who has any addresses and peers
    /// in it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_of_user(&self) -> bool {
        self.net.owner().is_some()
    }

    /// Takes the slot of a socket that waits for its connection. Returns `None` if there is none.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn socket_slot(&self) -> Option<SocketSlot> {
        self.limits.sockets.take(self.is_of_user())
    }

    /// Counts and logs that a connection with this key was refused, to a program of `user` if there
    /// is one. As for connections, nothing is logged in a namespace of a user.
    fn refuse(&self, key: &ConnKey, user: Option<UserId>, full: Full) -> NoConnection {
        self.stats.inc(Counter::ConnRefusedLimit);
        trace::dropped(&key.traced(), Counter::ConnRefusedLimit, 1);
        match user.filter(|user| *user != UserId::PEERS) {
            _ if self.is_of_user() => {}
            Some(_) => pr_attempt_ratelimited!("{}: refused, {}\n", key, full),
            None => pr_info_ratelimited!("{}: refused, {}\n", key, full),
        }
        NoConnection::Full
    }

    /// Returns the number of connections that peers without a message requested.
    #[cfg(rds_kunit)]
    pub(crate) fn strangers(&self) -> usize {
        self.connections.lock().tree.strangers()
    }

    /// Calls `each` with the names and values for `RDS_INFO_COUNTERS`, in order.
    pub(crate) fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let pool_usage = self.transports.pool_usage();
        self.stats
            .iter(pool_usage.bytes())
            .for_each(|(name, value)| each(name, value));
        pool_usage.for_each(each);
        self.transports.for_each_counter(each);
    }

    /// Calls `each`, without a lock, for all connections, until it fails. Connections that are
    /// added or removed meanwhile may be missed.
    pub(crate) fn try_for_each<E>(
        &self,
        mut each: impl FnMut(&Arc<Connection>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = None;
        walk_in_batches::<Arc<Connection>, E, BATCH>(
            |batch| {
                let mut connections = self.connections.lock();
                next = connections
                    .tree
                    .walk(next.take(), batch.room(), |connection| {
                        batch.push(connection.clone());
                    });
                Ok(next.is_some())
            },
            |connection| each(&connection),
        )
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
            for path in connection.other_paths().iter().flatten() {
                path.cancel_closed(sk, bound.port);
            }
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
        let cancel = |connection: &Arc<Connection>| {
            if to.scope == 0 || connection.key.scope == to.scope {
                connection.cancel(sk, bound.port, to.port);
            }
            sk.has_unacknowledged()
        };
        self.walk_of(sk.net, bound.addr, Some(to.addr), cancel);
        if sk.has_unacknowledged() {
            // Messages may have moved to the first path of a connection behind the walk.
            self.walk_of(sk.net, bound.addr, Some(to.addr), |connection| {
                connection.paths.is_none() || cancel(connection)
            });
        }
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
    pub(super) fn walk_of(
        &self,
        net: Net,
        laddr: Ipv6Addr,
        faddr: Option<Ipv6Addr>,
        mut each: impl FnMut(&Arc<Connection>) -> bool,
    ) {
        let mut last: Option<ConnKey> = None;
        // An error only ends the walk.
        let (Ok(()) | Err(())) = walk_in_batches::<Arc<Connection>, (), BATCH>(
            |batch| {
                let mut connections = self.connections.lock();
                let mut next = connections.first_of(net, laddr, faddr, last.as_ref());
                while batch.room() > 0 {
                    let Some(cursor) = next else {
                        return Ok(false);
                    };
                    let (key, connection) = cursor.current();
                    last = Some(*key);
                    batch.push(connection.clone());
                    next = cursor.move_next();
                    next = next.filter(|cursor| cursor.current().0.is_of(net, laddr, faddr));
                }
                Ok(next.is_some())
            },
            |connection| each(&connection).then_some(()).ok_or(()),
        );
    }

    /// Notes that a socket is about to be bound to an address of a transport.
    pub(crate) fn begin_use(self: &Arc<Self>, transport: TransportId) {
        if let Some(transport) = self.transports.get(transport) {
            transport.clone().begin_use(self);
        }
    }

    /// Notes that such a socket was closed, or not bound.
    pub(crate) fn end_use(&self, transport: TransportId) {
        if let Some(transport) = self.transports.get(transport) {
            transport.clone().end_use();
        }
    }

    /// Closes all connections of a transport, which stay in the table. The caller ensures that none
    /// of them gets another endpoint meanwhile.
    ///
    /// # Context
    ///
    /// Sleeps, for as long as the slowest of them takes.
    pub(crate) fn suspend(&self, transport: TransportId) {
        let for_each = |each: fn(&Arc<Connection>)| {
            let Ok(()) = self.try_for_each::<Infallible>(|connection| {
                if connection.key.transport == transport {
                    each(connection);
                }
                Ok(())
            });
        };
        // Before anything is waited for.
        for_each(Connection::begin_suspend);
        for_each(flush::<Connection, 0>);
    }

    /// Ends all connections for good, and waits for nothing but their own work. The caller has
    /// closed the listeners, and there is no open socket.
    pub(crate) fn stop(self: &Arc<Self>) {
        let mut connections = self.connections.lock();
        connections.closed = true;
        let (tree, counts) = connections.tree.take();
        drop(connections);
        drop(counts);
        // Before anything is waited for, so that no work waits for a peer.
        for connection in tree.values() {
            connection.begin_stop();
        }
        cancel_delayed::<_, 0>(self);
        cancel_delayed::<_, 1>(self);
        cancel_delayed::<_, 2>(self);
        cancel_delayed::<_, 3>(self);
        for connection in tree.values() {
            // Workers of other nodes may wait for their peers. The timer runs the worker, too.
            flush::<_, 0>(connection);
            cancel_delayed::<_, 1>(connection);
        }
        // All workers have handled the stop, so there is no endpoint. Until then the worker of one
        // path may queue that of another. Work that is still queued is cancelled.
        for connection in tree.values() {
            cancel::<_, 3>(connection);
            cancel_delayed::<_, 2>(connection);
            cancel::<_, 0>(connection);
            cancel_delayed::<_, 1>(connection);
            // Others may have the connection for longer.
            if let Some(charge) = &connection.quota_charge {
                charge.release();
            }
            if let Some(set) = &connection.paths {
                set.clear();
            }
        }
        // The connections are dropped here, with their queued messages.
    }
}

impl Deref for Node {
    type Target = NetState;

    #[inline]
    fn deref(&self) -> &NetState {
        &self.net_state
    }
}

/// The nodes of all network namespaces.
pub(crate) trait Nodes: Send + Sync + 'static {
    /// Returns the node of a namespace, which it creates for the first socket.
    ///
    /// # Errors
    ///
    /// - `ENETDOWN` if the namespace has ended.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn of(&self, net: Net) -> Result<Arc<Node>>;

    /// Returns all nodes.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn all(&self) -> Result<KVec<Arc<Node>>>;
}
