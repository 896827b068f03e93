// SPDX-License-Identifier: GPL-2.0

//! Registry of the transports, and the choice between them.

use super::Transport;
use crate::{
    kapi::{
        errno::Errno,
        net::{
            IpBits,
            Net, //
        }, //
    },
    rdma_mem::RdmaOps,
    recv_pool::{
        PoolUsage,
        Pools, //
    },
    socket::{
        Bound,
        Peer,
        TransportId, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// The transports of this node, at most one of each kind.
#[derive(Clone)]
pub(crate) struct Transports {
    ib: Option<Arc<dyn Transport>>,
    tcp: Option<Arc<dyn Transport>>,
    loopback: Option<Arc<dyn Transport>>,
    /// A network that only other namespaces have. Its counters are shown as 0.
    absent: Option<Arc<dyn Transport>>,
}

impl Transports {
    /// Creates an empty registry.
    pub(crate) const fn new() -> Self {
        Self {
            ib: None,
            tcp: None,
            loopback: None,
            absent: None,
        }
    }

    /// Adds a transport, in place of one of its kind.
    pub(crate) fn with(mut self, transport: Arc<dyn Transport>) -> Self {
        match transport.id() {
            TransportId::Ib => self.ib = Some(transport),
            TransportId::Loop => self.loopback = Some(transport),
            TransportId::Tcp => self.tcp = Some(transport),
        }
        self
    }

    /// Notes a network that only other namespaces have. All show the same counters.
    pub(crate) fn without(mut self, network: Arc<dyn Transport>) -> Self {
        self.absent = Some(network);
        self
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
            TransportId::Loop => self.loopback.as_ref(),
            TransportId::Tcp => self.tcp.as_ref(),
        }
    }

    /// Returns `true` if this node or that of another namespace has RDMA.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn have_rdma(&self) -> bool {
        self.ib.is_some() || self.absent.is_some()
    }

    /// Returns the transports to other nodes. Only they have pools, counters and connections.
    #[inline]
    fn networks(&self) -> impl Iterator<Item = &Arc<dyn Transport>> {
        Iterator::chain(self.ib.iter(), self.tcp.iter())
    }

    /// Returns the transport that serves a local address, which is no loopback address. It is the
    /// one that the program has selected, or else the first of those that have the address.
    ///
    /// With one network a program can select no other. So its selection is only asked for if there
    /// are two.
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
        chosen: impl FnOnce() -> Option<TransportId>,
    ) -> Result<Option<TransportId>> {
        if self.tcp.is_some() {
            return self.one_of_two(net, addr, scope, chosen());
        }
        let Some(ib) = &self.ib else {
            return Ok(None);
        };
        Ok(ib.claims(net, addr, scope)?.then_some(TransportId::Ib))
    }

    /// Returns the network that serves a local address, if there are several.
    #[cold]
    fn one_of_two(
        &self,
        net: Net,
        addr: IpBits,
        scope: u32,
        chosen: Option<TransportId>,
    ) -> Result<Option<TransportId>> {
        for transport in self.networks() {
            let excluded = chosen.is_some_and(|it| it != transport.id());
            if !excluded && transport.claims(net, addr, scope)? {
                return Ok(Some(transport.id()));
            }
        }
        Ok(None)
    }

    /// Returns the transport that serves a loopback address: the loop transport, or TCP if the
    /// program has selected it.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn serving_loopback(
        &self,
        net: Net,
        addr: IpBits,
        chosen: Option<TransportId>,
    ) -> Result<Option<TransportId>> {
        let id = match chosen {
            None => TransportId::Loop,
            Some(id @ (TransportId::Loop | TransportId::Tcp)) => id,
            Some(TransportId::Ib) => return Ok(None),
        };
        let Some(transport) = self.get(id) else {
            return Ok(None);
        };
        Ok(transport.claims(net, addr, 0)?.then_some(id))
    }

    /// Returns the transport of messages from a bound socket to a peer.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn reaching(&self, net: Net, bound: &Bound, peer: &Peer) -> TransportId {
        // A message to the sender's own address stays on this node.
        if bound.transport == TransportId::Loop || bound.addr == peer.addr {
            return TransportId::Loop;
        }
        // TCP leads to other nodes only.
        let scope = match peer.scope {
            0 => bound.scope,
            scope => scope,
        };
        if bound.transport == TransportId::Tcp && self.is_local(net, peer.addr, scope) {
            return TransportId::Loop;
        }
        bound.transport
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
    /// - `ENETUNREACH` if the socket does not reach other nodes: it has a loopback address, or this
    ///   node does not have its transport. An answer to a loopback address would not come back. Any
    ///   user has millions of these, each with connections of its own that never come up.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn pools(&self, bound: &Bound) -> Result<Arc<Pools>> {
        if IpBits::new(bound.addr).is_loopback() {
            return Err(Errno::NetUnreachable.into());
        }
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
        let limits = self.networks().map(|transport| transport.pool_limit());
        limits.min().unwrap_or(usize::MAX)
    }

    /// Returns the memory that the pools of all transports hold.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn pool_usage(&self) -> PoolUsage {
        let mut pool_usage = PoolUsage::default();
        for transport in self.networks() {
            transport.add_pools(&mut pool_usage);
        }
        pool_usage
    }

    /// Calls `each` with the name and value of each counter of the transports.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(absent) = &self.absent {
            absent.for_each_counter(&mut |name, _| each(name, 0));
        }
        for transport in self.networks() {
            transport.for_each_counter(each);
        }
    }

    /// Calls `each` with the owner's name and the pools, for each device and for those without one.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        for transport in self.networks() {
            transport.for_each_pools(each);
        }
    }

    /// Returns `true` if TCP of a namespace has an address.
    #[cold]
    fn is_local(&self, net: Net, addr: Ipv6Addr, scope: u32) -> bool {
        let scope = if addr.is_unicast_link_local() {
            scope
        } else {
            0
        };
        let claims = |tcp: &Arc<dyn Transport>| tcp.claims(net, IpBits::new(addr), scope);
        self.tcp.as_ref().is_some_and(|tcp| claims(tcp) == Ok(true))
    }
}
