// SPDX-License-Identifier: GPL-2.0

//! A transport without program memory for the connections of suites, and queries to its node.

use crate::{
    conn::{
        ConnKey,
        Connection,
        Endpoint,
        Node,
        Transport, //
    },
    kapi::net::{
        IpBits,
        Net, //
    },
    proto::wire::FragmentSize,
    recv_pool::Pools,
    socket::TransportId, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A suite's own transport. It serves all addresses and has no program memory.
pub(crate) trait WithoutMemory: Send + Sync {
    /// Returns the kind of the transport that it stands for.
    fn id(&self) -> TransportId {
        TransportId::Ib
    }

    /// Returns the pools of its only device.
    fn pools(&self) -> Result<Arc<Pools>>;

    /// Creates an endpoint, which starts to prepare its request.
    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>>;
}

impl<T: WithoutMemory> Transport for T {
    fn id(&self) -> TransportId {
        WithoutMemory::id(self)
    }

    fn fragment(&self) -> FragmentSize {
        FragmentSize::K4
    }

    fn claims(&self, _: Net, _: IpBits, _: u32) -> Result<bool> {
        Ok(true)
    }

    fn pools(&self, _: Ipv6Addr, _: u32) -> Result<Arc<Pools>> {
        WithoutMemory::pools(self)
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        WithoutMemory::prepare(self, connection)
    }
}

/// Returns the key of the connection of a suite.
pub(crate) fn key() -> ConnKey {
    ConnKey {
        net: Net::init(),
        laddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        scope: 0,
        tos: 0,
        transport: TransportId::Ib,
    }
}

/// Returns the value of a counter of a node, 0 if no counter has this name.
pub(crate) fn counted(node: &Node, name: &str) -> u64 {
    let mut counters = node.stats.iter(0);
    counters
        .find(|(other, _)| *other == name)
        .map_or(0, |(_, value)| value)
}
