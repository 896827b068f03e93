// SPDX-License-Identifier: GPL-2.0

//! Registry of the transports to other nodes.

use super::Transport;
use crate::kapi::{
    errno::Errno,
    net::{IpBits, Net},
};
use crate::rdma_mem::RdmaOps;
use crate::recv_pool::Pools;
use crate::socket::{Bound, TransportId};
use kernel::{fmt, prelude::*, sync::Arc};

/// The transports to other nodes. The loop transport is none of them, because it has no
/// connections.
pub(crate) struct Transports {
    ib: Option<Arc<dyn Transport>>,
}

impl Transports {
    pub(crate) const fn new(ib: Option<Arc<dyn Transport>>) -> Self {
        Self { ib }
    }

    /// Returns a transport, if this node has it.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn get(&self, id: TransportId) -> Option<&Arc<dyn Transport>> {
        match id {
            TransportId::Ib => self.ib.as_ref(),
            TransportId::Tcp | TransportId::Loop => None,
        }
    }

    /// Returns the transport that serves a local address.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep, unless the answer is cached.
    #[inline]
    pub(crate) fn serving(
        &self,
        net: Net,
        addr: IpBits,
        scope: u32,
    ) -> Result<Option<TransportId>> {
        let Some(ib) = &self.ib else {
            return Ok(None);
        };
        Ok(ib.claims(net, addr, scope)?.then_some(TransportId::Ib))
    }

    /// Returns the RDMA operations of a transport.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if the transport has none.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn rdma(&self, id: TransportId) -> Result<&dyn RdmaOps> {
        let transport = self.get(id).ok_or(Errno::NotSupported)?;
        Ok(transport.rdma().ok_or(Errno::NotSupported)?)
    }

    /// Returns the pools for messages of a bound socket.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH` if this node does not have the transport of the socket.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn pools(&self, bound: &Bound) -> Result<Arc<Pools>> {
        let transport = self.get(bound.transport).ok_or(Errno::NetUnreachable)?;
        transport.pools(bound.addr, bound.scope)
    }

    /// Returns the maximum size of each pool, in bytes.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn pool_limit(&self) -> usize {
        self.ib.as_ref().map_or(usize::MAX, |ib| ib.pool_limit())
    }

    /// Returns the bytes that all pools hold.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn pool_bytes(&self) -> u64 {
        self.ib.as_ref().map_or(0, |ib| ib.pool_bytes())
    }

    /// Calls `each` with the name and value of each counter of the transports.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(ib) = &self.ib {
            ib.for_each_counter(each);
        }
    }

    /// Calls `each` with the owner's name and the pools, for each device and for those without one.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        if let Some(ib) = &self.ib {
            ib.for_each_pools(each);
        }
    }
}
