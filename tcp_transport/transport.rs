// SPDX-License-Identifier: GPL-2.0

//! Interface of the transport to connections and sockets.

use super::{
    endpoint::TcpEndpoint,
    tcp::Tcp, //
};
use crate::{
    conn::{
        ConnKey,
        Connection,
        Endpoint,
        Transport, //
    },
    kapi::net::{
        IpBits,
        Locality,
        Net, //
    },
    proto::{
        mprds::PathCount,
        wire::FragmentSize, //
    },
    recv_pool::{
        PoolUsage,
        Pools, //
    },
    socket::TransportId, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

impl Transport for Tcp {
    fn id(&self) -> TransportId {
        TransportId::Tcp
    }

    fn fragment(&self) -> FragmentSize {
        FragmentSize::K8
    }

    fn most_paths(&self) -> PathCount {
        self.tunables.most_paths()
    }

    fn claims(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool> {
        let is_here = || self.net.locality(addr.addr(), scope) != Locality::Elsewhere;
        Ok(net == self.net.id() && is_here())
    }

    fn pools(&self, _: Ipv6Addr, _: u32) -> Result<Arc<Pools>> {
        Ok(self.memory().clone())
    }

    fn pool_limit(&self) -> usize {
        self.most_memory()
    }

    fn add_pools(&self, pool_usage: &mut PoolUsage) {
        // All namespaces share the pools, and must not observe each other.
        if self.net.id().is_init() {
            self.memory().add_to(pool_usage);
        }
    }

    fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.counters.for_each(each);
        // RDMA shows those of the pools, which all share, if the module has it.
        if cfg!(not(CONFIG_RDS_RUST_RDMA)) {
            let is_shown = self.net.id().is_init();
            let counters = self.pool_counters();
            counters.for_each(&mut |name, value| each(name, if is_shown { value } else { 0 }));
        }
    }

    fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {
        if self.net.id().is_init() {
            each(&"tcp", self.memory());
        }
    }

    fn lose_request(&self, key: &ConnKey) {
        self.lose(key);
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        TcpEndpoint::prepare(&self, connection)
    }
}
