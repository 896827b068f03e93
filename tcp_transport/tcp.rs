// SPDX-License-Identifier: GPL-2.0

//! State that all endpoints share: memory of messages and the queue of work, of the machine;
//! counters and settings, of a network namespace.

use super::{
    counters::{
        TcpCounter,
        TcpCounters, //
    },
    partial::{
        PartialBudget,
        PartialCharge,
        PartialLimit, //
    },
    reader::ReadMemory,
    tunables::TcpTunables, //
};
use crate::{
    conn::{
        ConnKey,
        Connection, //
    },
    kapi::{
        net::NetRef,
        print::pr_info_ratelimited,
        shrinker::Shrinker,
        sync::OwnedQueue, //
    },
    params,
    proto::starvation::next_give_up,
    recv_pool::{
        Context,
        Counters,
        PoolShared,
        Pools,
        Unmapped, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Memory of messages, and the queue of work, which all network namespaces share.
pub(crate) struct TcpShared {
    queue: OwnedQueue,
    pool_shared: PoolShared,
    _shrinker: Shrinker<Pools>,
    memory: Unmapped,
    /// Buffers of incomplete messages of strangers.
    partial: PartialBudget,
    /// Those in network namespaces of users.
    partial_of_users: PartialBudget,
    /// Times before which no other connection may be given up for its memory: for known peers, for
    /// strangers, and for namespaces of users.
    next_give_up: [Atomic<u64>; 3],
}

impl TcpShared {
    /// Creates the state if the module was loaded with `tcp=1`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn if_wanted(pool_shared: PoolShared) -> Result<Option<Arc<Self>>> {
        match params::tcp() {
            0 => Ok(None),
            _ => Self::new(pool_shared).map(Some),
        }
    }

    /// Creates the state. Its pools have the limits of those of devices.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(pool_shared: PoolShared) -> Result<Arc<Self>> {
        let memory = Unmapped::new(&pool_shared)?;
        Ok(Arc::new(
            Self {
                queue: OwnedQueue::new(c"rds_tcp")?,
                pool_shared,
                _shrinker: Shrinker::new(memory.pools().clone())?,
                memory,
                partial: PartialBudget::new()?,
                partial_of_users: PartialBudget::new()?,
                next_give_up: [const { Atomic::new(0) }; 3],
            },
            GFP_KERNEL,
        )?)
    }
}

/// The transport of a network namespace.
pub(crate) struct Tcp {
    pub(super) net: NetRef,
    pub(super) counters: TcpCounters,
    pub(super) tunables: Arc<TcpTunables>,
    shared: Arc<TcpShared>,
}

impl Tcp {
    /// Creates the transport.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        shared: &Arc<TcpShared>,
        net: NetRef,
        tunables: Arc<TcpTunables>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                net,
                counters: TcpCounters::new()?,
                tunables,
                shared: shared.clone(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Returns the queue of work. Any context.
    pub(super) fn queue(&self) -> &OwnedQueue {
        &self.shared.queue
    }

    /// Returns the pools of all messages. Any context.
    pub(super) fn memory(&self) -> &Arc<Pools> {
        self.shared.memory.pools()
    }

    /// Returns the counters of the pools of the machine. Any context.
    pub(super) fn pool_counters(&self) -> &Counters {
        &self.shared.pool_shared.counters
    }

    /// Returns the charge of a connection without an incomplete message. Any context.
    pub(crate) fn partial_charge(&self) -> PartialCharge {
        match self.net.owner() {
            Some(_) => self.shared.partial_of_users.charge(),
            None => self.shared.partial.charge(),
        }
    }

    /// Returns the memory for frames of a peer. Any context.
    pub(crate) fn memory_to_read(
        &self,
        connection: &Connection,
        context: Context,
    ) -> ReadMemory<'_> {
        let (has_limit, most) = (self.has_limit(connection), self.most_memory());
        ReadMemory {
            pools: self.memory(),
            // A packet may take twice what the limit allows for.
            packets: if has_limit { 0 } else { most / 2 },
            context,
            limit: has_limit.then(|| PartialLimit::of_pool(most)),
        }
    }

    /// Returns `true` if incomplete messages on a connection have a limit: the peer is a stranger,
    /// or the namespace belongs to a user.
    pub(super) fn has_limit(&self, connection: &Connection) -> bool {
        connection.is_of_stranger() || self.net.owner().is_some()
    }

    /// Returns `true` if a connection may be given up at time `now` for the memory that it keeps.
    /// They go one by one, so that others get on with that memory. Any context.
    pub(crate) fn may_give_up(&self, connection: &Connection, now: u64) -> bool {
        let [others, strangers, of_users] = &self.shared.next_give_up;
        let next = match self.net.owner() {
            Some(_) => of_users,
            None if connection.is_of_stranger() => strangers,
            None => others,
        };
        let at = next.load(Relaxed);
        now >= at
            && next
                .cmpxchg(at, next_give_up(now, 0, false), Relaxed)
                .is_ok()
    }

    /// Returns the maximum size of each pool, in bytes. Any context.
    pub(super) fn most_memory(&self) -> usize {
        self.shared.pool_shared.most.shared_bytes()
    }

    /// Returns `true` if events of the listener are logged. Any user could fill the log from a
    /// namespace of his, where he also is the peer. Any context.
    pub(super) fn logs(&self) -> bool {
        self.net.owner().is_none()
    }

    /// Counts and logs that a socket is dropped with messages, or that a request is forgotten.
    /// Process context.
    #[cold]
    pub(super) fn lose(&self, key: &ConnKey) {
        self.counters.inc(TcpCounter::ListenLost);
        if self.logs() {
            pr_info_ratelimited!(
                "{}: messages or a request are lost, there is no room\n",
                key
            );
        }
    }
}
