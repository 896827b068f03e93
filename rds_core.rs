// SPDX-License-Identifier: GPL-2.0

//! Reliable Datagram Sockets: the module, its registrations and the order of their teardown.

// Without one of the transports not all that they have in common is used.
#![cfg_attr(
    not(all(CONFIG_RDS_RUST_RDMA, CONFIG_RDS_RUST_TCP)),
    allow(dead_code, unused_imports)
)]

use kernel::prelude::*;

mod af_rds;
mod bindings;
#[cfg(CONFIG_RDS_RUST_RDMA)]
mod cm;
mod cong;
mod conn;
#[cfg(CONFIG_RDS_RUST_RDMA)]
mod ib_transport;
#[cfg(not(CONFIG_RDS_RUST_RDMA))]
#[path = "ib_transport/absent.rs"]
mod ib_transport;
mod kapi;
mod loop_transport;
mod msg;
mod namespaces;
mod params;
mod proto;
mod rdma_mem;
mod recv_pool;
mod socket;
mod stats;
#[cfg(CONFIG_RDS_RUST_TCP)]
mod tcp_transport;
#[cfg(not(CONFIG_RDS_RUST_TCP))]
#[path = "tcp_transport/absent.rs"]
mod tcp_transport;
mod trace;
mod uapi;

use conn::{
    Bounds,
    Node,
    NodeLimits,
    Nodes,
    Transports,
    Views, //
};
use ib_transport::{
    Rdma,
    RdmaDevices,
    RdmaFiles,
    RdmaListeners, //
};
use kapi::{
    net::{
        NetRef,
        PernetRegistration,
        Registration, //
    },
    print,
    shrinker::total_memory,
    sync::OwnedQueue,
    sysctl::Directory, //
};
use kernel::sync::Arc;
use loop_transport::Loop;
use namespaces::{
    AllNodes,
    Common,
    Connections,
    Others, //
};
use proto::idle::IdleTimeouts;
use recv_pool::{
    Counters,
    Limit,
    PoolShared, //
};
use socket::{
    SharedState,
    Socket, //
};
use tcp_transport::{
    Tcp,
    TcpListener,
    TcpShared,
    TcpTunables, //
};

#[cfg(rds_kunit)]
#[path = "tests/kunit/mod.rs"]
mod kunit;

module! {
    type: RdsModule,
    name: "rds_rust",
    authors: ["The rds_rust maintainers"],
    description: "Reliable Datagram Sockets",
    license: "GPL v2",
    // No alias net-pf-21: any user's socket would load the module. An administrator may add it.
    // bindings/helpers_rdma.c has the one of RDMA.
    alias: ["rds"],
}

/// Version of this module. `modinfo` reports the version of C RDS instead, which programs look for.
const RELEASE: &str = include_str!("VERSION").trim_ascii_end();

/// Minimum pool limit: memory for a message of the largest size, and the rings of a few
/// connections.
const LEAST_POOL_MIB: u32 = 2;

/// Returns the memory limit of one pool, in bytes.
fn pool_limit() -> usize {
    match params::pool_limit_mib() {
        0 => total_memory() / 4,
        mib => (mib.max(LEAST_POOL_MIB) as usize).saturating_mul(1 << 20),
    }
}

/// Registrations of the module. Fields are dropped in this order: callers before what they call.
struct RdsModule {
    _family: Registration<Socket>,
    _rdma_files: RdmaFiles,
    _tcp_tunables: Option<Directory<TcpTunables>>,
    _views: Views,
    _others: PernetRegistration<Others>,
    _init_net: InitNamespace,
    _rdma_devices: RdmaDevices,
    _late_wakeups: LateWakeups,
}

/// Waits for workers that an event of a device or an address, or the end of another path, has woken
/// after their connection had ended. They hold the node, whose workqueue must not end within an
/// item of its own.
struct LateWakeups([Arc<OwnedQueue>; 2]);

impl Drop for LateWakeups {
    fn drop(&mut self) {
        for queue in &self.0 {
            queue.flush();
        }
    }
}

impl Drop for RdsModule {
    fn drop(&mut self) {
        if cfg!(CONFIG_RDS_RUST_RDMA) {
            // Same text as C RDS: scripts match it.
            pr_info!("Unregistered RDS/infiniband transport\n");
        }
    }
}

/// Logs a hint if C RDS holds AF_RDS.
fn log_conflict(error: &Error) {
    if *error == EEXIST {
        pr_err!("AF_RDS is registered already: unload C RDS first (rmmod rds_rdma rds_tcp rds)\n");
    }
}

/// The initial network namespace: its node, and the ways into it.
///
/// Dropping it is the teardown of the namespace. When that is done, the node has no connections,
/// and nothing creates one. Fields are dropped in this order: callers before what they call. Open
/// sockets of the namespace have to be gone before.
struct InitNamespace {
    _tunables: Directory<conn::Tunables>,
    _rdma_listeners: RdmaListeners,
    _tcp_listener: Option<TcpListener>,
    connections: Connections,
}

impl InitNamespace {
    /// Creates the object of the initial namespace.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EADDRINUSE` if other software listens on the CM port.
    /// - `EEXIST` if a sysctl of the same name exists.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    fn new(
        net: NetRef,
        common: &Common,
        workers: Arc<OwnedQueue>,
        tcp: Option<&Arc<Tcp>>,
    ) -> Result<Self> {
        let tunables = Arc::new(conn::Tunables::new(), GFP_KERNEL)?;
        let loopback = Transports::new().with(common.loopback.clone());
        let mut transports = common.rdma.with(loopback);
        if let Some(tcp) = tcp {
            transports = transports.with(tcp.clone());
        }
        let node = Node::new(
            net.clone(),
            common.shared.clone(),
            transports,
            workers,
            tunables.clone(),
            NodeLimits::of_one(common.bounds)?,
            common.idle_timeouts,
        )?;
        let connections = Connections(node);
        // Before those of the CM, which does without IPv6 if the port is in use.
        let tcp_listener = tcp.map(|tcp| TcpListener::new(&connections.0, tcp));
        let tcp_listener = tcp_listener.transpose()?;
        let rdma_listeners = common.rdma.listen(&connections.0)?;
        Ok(Self {
            _tunables: Directory::new(&net, tunables).inspect_err(log_conflict)?,
            _rdma_listeners: rdma_listeners,
            _tcp_listener: tcp_listener,
            connections,
        })
    }

    /// Returns the node of the namespace.
    fn node(&self) -> &Arc<Node> {
        &self.connections.0
    }
}

impl kernel::Module for RdsModule {
    fn init(module: &'static ThisModule) -> Result<Self> {
        print::init_limits();
        let queue = Arc::new(OwnedQueue::new(c"rds")?, GFP_KERNEL)?;
        // Separate queue: workers block for seconds on dead peers and would starve other work.
        let workers = Arc::new(OwnedQueue::new(c"rds_conn")?, GFP_KERNEL)?;
        // Those of RDMA may wait for their peers, and must not delay the end of a namespace.
        let workers_of_others = Arc::new(OwnedQueue::new(c"rds_netns")?, GFP_KERNEL)?;
        // Before all others, so a load that fails drops it after them, too.
        let late_wakeups = LateWakeups([workers.clone(), workers_of_others.clone()]);
        let pool_shared = PoolShared {
            most: Arc::new(Limit::new(pool_limit()), GFP_KERNEL)?,
            counters: Arc::new(Counters::new(), GFP_KERNEL)?,
            queue: queue.clone(),
        };
        let net = NetRef::init()?;
        let tcp_shared = TcpShared::if_wanted(pool_shared.clone())?;
        let tcp_tunables = match &tcp_shared {
            Some(_) => Some(Arc::new(TcpTunables::new(), GFP_KERNEL)?),
            None => None,
        };
        let tcp = match (&tcp_shared, &tcp_tunables) {
            (Some(shared), Some(tunables)) => {
                Some(Tcp::new(shared, net.clone(), tunables.clone())?)
            }
            _ => None,
        };
        let rdma = Arc::new(Rdma::new(&net, pool_shared)?, GFP_KERNEL)?;
        let common = Common {
            shared: SharedState::new(queue, total_memory() as u64)?,
            loopback: Arc::new(Loop, GFP_KERNEL)?,
            rdma: rdma.clone(),
            tcp: tcp_shared,
            bounds: Bounds {
                all: params::max_conns() as usize,
                per_peer: params::max_conns_per_peer() as usize,
            },
            idle_timeouts: IdleTimeouts::new(params::idle_secs()),
        };
        let rdma_devices = rdma.register()?;
        let init_net = InitNamespace::new(net.clone(), &common, workers, tcp.as_ref())?;
        let others = Others::new(common, workers_of_others)?;
        let nodes = AllNodes {
            init: init_net.node().clone(),
            others: others.clone(),
        };
        let nodes: Arc<dyn Nodes> = Arc::new(nodes, GFP_KERNEL)?;
        let others = PernetRegistration::new(others)?;
        let views = Views::new(&nodes)?;
        rdma.start();
        let rdma_files = rdma.files(&net).inspect_err(log_conflict)?;
        let new_directory = |tunables| Directory::new(&net, tunables);
        let tcp_tunables = tcp_tunables.map(new_directory).transpose();
        let tcp_tunables = tcp_tunables.inspect_err(log_conflict)?;
        // Registered last: sockets may exist from here on, so no later step may fail.
        let family = Registration::new(module, nodes).inspect_err(log_conflict)?;
        pr_info!("version {}\n", RELEASE);
        // Same texts as C RDS: programs match them.
        if cfg!(CONFIG_RDS_RUST_RDMA) {
            pr_info!("Registered RDS/infiniband transport\n");
        }
        if tcp.is_some() {
            pr_info!("Registered RDS/tcp transport\n");
        }
        Ok(Self {
            _family: family,
            _rdma_files: rdma_files,
            _tcp_tunables: tcp_tunables,
            _views: views,
            _others: others,
            _init_net: init_net,
            _rdma_devices: rdma_devices,
            _late_wakeups: late_wakeups,
        })
    }
}
