// SPDX-License-Identifier: GPL-2.0

//! State that the sockets of a network namespace share: congestion maps of local addresses, and
//! counters.

use super::{
    Bound,
    MsgMeta,
    SharedState, //
};
use crate::{
    cong::{
        MapCount,
        MapKey,
        MapRoom,
        Registry, //
    },
    kapi::{
        net::{
            IpBits,
            Net, //
        },
        sync::{
            OwnedQueue,
            ReadOnce, //
        },
        time, //
    },
    stats::{
        Counter,
        Stats, //
    },
    trace, //
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

/// State that the sockets of a network namespace share.
pub(crate) struct NetState {
    /// State that the sockets of all namespaces share.
    pub(crate) shared: Arc<SharedState>,
    pub(crate) stats: Stats,
    /// Congestion maps of the addresses of this node.
    pub(crate) cong: Registry,
    /// Number of sockets that request timestamps of the receive path.
    tracing: Atomic<u32>,
    /// The workqueue of [`SharedState`].
    pub(crate) queue: Arc<OwnedQueue>,
}

impl NetState {
    /// Creates the state of a namespace without sockets.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(shared: Arc<SharedState>, maps: MapRoom) -> Result<Self> {
        Ok(Self {
            queue: shared.queue.clone(),
            shared,
            stats: Stats::new()?,
            cong: Registry::new(maps)?,
            tracing: Atomic::new(0),
        })
    }

    /// Returns timestamps for an arriving message, if a socket may request them. `None` also if
    /// there is no memory.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn begin_stamps(&self) -> Option<KBox<MsgMeta>> {
        if self.tracing.read_once() == 0 {
            return None;
        }
        MsgMeta::with_stamps()
    }

    /// Counts a socket whose request for timestamps changes. `idle` means that it had none,
    /// `idle_now` that it has none now.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn note_tracing(&self, idle: bool, idle_now: bool) {
        match (idle, idle_now) {
            (true, false) => drop(self.tracing.fetch_add(1, Relaxed)),
            (false, true) => drop(self.tracing.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    /// Marks a port of this node in the map of its address: full, or not any more. `user` has the
    /// number of maps of the socket's user, if that is limited.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if the port is full and there is no memory or room for the map. This is counted.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn mark_port(
        &self,
        net: Net,
        bound: &Bound,
        full: bool,
        user: Option<&MapCount>,
    ) -> Result {
        if let Some(key) = map_key(net, bound) {
            self.cong
                .mark(key, bound.port, full, time::monotonic_ns(), user)
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
        trace::dropped(&trace::Conn::local(bound.addr), reason, 1);
    }
}

/// Returns the address in whose map the port of a socket is.
///
/// `None` for a loopback address, whatever its transport. No peer sends to it, and sockets of this
/// node look at the socket itself. Any user has millions of these addresses.
pub(crate) fn map_key(net: Net, bound: &Bound) -> Option<MapKey> {
    let key = MapKey {
        net,
        addr: bound.addr,
        scope: bound.scope,
    };
    (!IpBits::new(bound.addr).is_loopback()).then_some(key)
}
