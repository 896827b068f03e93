// SPDX-License-Identifier: GPL-2.0

//! State that all endpoints share: memory of messages, queue of work, and counters.

use super::{
    counters::{
        TcpCounter,
        TcpCounters, //
    },
    tunables::TcpTunables, //
};
use crate::{
    conn::ConnKey,
    kapi::{
        print::pr_info_ratelimited,
        shrinker::Shrinker,
        sync::OwnedQueue, //
    },
    recv_pool::{
        PoolShared,
        Pools,
        Unmapped, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The transport: memory of its messages, and the queue of its work.
pub(crate) struct Tcp {
    pub(super) counters: TcpCounters,
    pub(super) queue: OwnedQueue,
    pub(super) pool_shared: PoolShared,
    pub(super) tunables: Arc<TcpTunables>,
    _shrinker: Shrinker<Pools>,
    memory: Unmapped,
}

impl Tcp {
    /// Creates the transport. Its pools have the limits of those of devices.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(pool_shared: PoolShared, tunables: Arc<TcpTunables>) -> Result<Arc<Self>> {
        let memory = Unmapped::new(&pool_shared)?;
        Ok(Arc::new(
            Self {
                counters: TcpCounters::new()?,
                queue: OwnedQueue::new(c"rds_tcp")?,
                pool_shared,
                tunables,
                _shrinker: Shrinker::new(memory.pools().clone())?,
                memory,
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the pools of all messages. Any context.
    pub(super) fn memory(&self) -> &Arc<Pools> {
        self.memory.pools()
    }

    /// Counts and logs that a socket is dropped with messages, or that a request is forgotten.
    /// Process context.
    #[cold]
    pub(super) fn lose(&self, key: &ConnKey) {
        self.counters.inc(TcpCounter::ListenLost);
        pr_info_ratelimited!(
            "{}: messages or a request are lost, there is no room\n",
            key
        );
    }
}
