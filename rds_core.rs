// SPDX-License-Identifier: GPL-2.0

//! Reliable Datagram Sockets: the module, its registrations and the order of their teardown.

use kernel::prelude::*;

mod af_rds;
mod bindings;
mod cm;
mod cong;
mod conn;
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
mod tcp_transport;
mod trace;
mod uapi;

use cm::{
    laddr::{
        AddrEvents,
        LocalAddrs, //
    },
    Listeners, //
};
use conn::{
    Bounds,
    Node,
    NodeLimits,
    Nodes,
    Transports,
    Views, //
};
use ib_transport::Ib;
use kapi::{
    net::{
        NetRef,
        PernetRegistration,
        Registration, //
    },
    print,
    rdma::{
        ClientRegistration,
        FaultInjection, //
    },
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
use proto::{
    idle::IdleTimeouts,
    wire::FragmentSize, //
};
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
    alias: ["rds", "rds_rdma"],
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

/// Returns the fragment size that this node asks its peers for.
fn max_fragment() -> FragmentSize {
    let wanted = params::max_frag();
    let size = FragmentSize::at_most(wanted);
    if size.bytes() != wanted {
        pr_warn!(
            "max_frag={} is not 4096, 8192 or 16384: using {}\n",
            wanted,
            size.bytes()
        );
    }
    size
}

/// Registrations of the module. Fields are dropped in this order: callers before what they call.
struct RdsModule {
    _family: Registration<Socket>,
    _ib_tunables: Directory<ib_transport::IbTunables>,
    _tcp_tunables: Option<Directory<TcpTunables>>,
    _views: Views,
    _others: PernetRegistration<Others>,
    _init_net: InitNamespace,
    _client: Pin<KBox<ClientRegistration<Ib>>>,
    _addr_events: AddrEvents,
    _faults: FaultInjection,
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
        // Same text as C RDS: scripts match it.
        pr_info!("Unregistered RDS/infiniband transport\n");
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
    _listeners: Listeners<Ib>,
    _tcp_listener: Option<TcpListener>,
    connections: Connections,
}

impl InitNamespace {
    /// Creates the object of the initial namespace, to which RDMA devices belong.
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
        ib: &Arc<Ib>,
        tcp: Option<&Arc<Tcp>>,
    ) -> Result<Self> {
        let tunables = Arc::new(conn::Tunables::new(), GFP_KERNEL)?;
        let mut transports = Transports::new()
            .with(ib.clone())
            .with(common.loopback.clone());
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
        let listeners = Listeners::new(&connections.0, ib)?;
        Ok(Self {
            _tunables: Directory::new(&net, tunables).inspect_err(log_conflict)?,
            _listeners: listeners,
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
        let pool_limit = Arc::new(Limit::new(pool_limit()), GFP_KERNEL)?;
        let pool_shared = PoolShared {
            most: pool_limit.clone(),
            counters: Arc::new(Counters::new(), GFP_KERNEL)?,
            queue: queue.clone(),
        };
        let addrs = LocalAddrs::new(queue.clone())?;
        let ib_tunables = ib_transport::IbTunables::new(pool_limit, params::rds_ib_retry_count());
        let ib_tunables = Arc::new(ib_tunables, GFP_KERNEL)?;
        let net = NetRef::init()?;
        let tcp_shared = match params::tcp() {
            0 => None,
            _ => Some(TcpShared::new(pool_shared.clone())?),
        };
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
        let ib = Ib::new(
            addrs.clone(),
            pool_shared,
            max_fragment(),
            ib_tunables.clone(),
        )?;
        let common = Common {
            shared: SharedState::new(queue, total_memory() as u64)?,
            loopback: Arc::new(Loop, GFP_KERNEL)?,
            ib: ib.clone(),
            tcp: tcp_shared,
            bounds: Bounds {
                all: params::max_conns() as usize,
                per_peer: params::max_conns_per_peer() as usize,
            },
            idle_timeouts: IdleTimeouts::new(params::idle_secs()),
        };
        let faults = FaultInjection::new();
        let addr_events = AddrEvents::new(&addrs)?;
        let client = ClientRegistration::new(ib.clone())?;
        let init_net = InitNamespace::new(net.clone(), &common, workers, &ib, tcp.as_ref())?;
        let others = Others::new(common, workers_of_others)?;
        let nodes = AllNodes {
            init: init_net.node().clone(),
            others: others.clone(),
        };
        let nodes: Arc<dyn Nodes> = Arc::new(nodes, GFP_KERNEL)?;
        let others = PernetRegistration::new(others)?;
        let views = Views::new(&nodes)?;
        // The first bind should already find its answer cached.
        addrs.start();
        let ib_tunables = Directory::new(&net, ib_tunables).inspect_err(log_conflict)?;
        let new_directory = |tunables| Directory::new(&net, tunables);
        let tcp_tunables = tcp_tunables.map(new_directory).transpose();
        let tcp_tunables = tcp_tunables.inspect_err(log_conflict)?;
        // Registered last: sockets may exist from here on, so no later step may fail.
        let family = Registration::new(module, nodes).inspect_err(log_conflict)?;
        pr_info!("version {}\n", RELEASE);
        // Same text as C RDS: programs match it.
        pr_info!("Registered RDS/infiniband transport\n");
        if tcp.is_some() {
            pr_info!("Registered RDS/tcp transport\n");
        }
        Ok(Self {
            _family: family,
            _ib_tunables: ib_tunables,
            _tcp_tunables: tcp_tunables,
            _views: views,
            _others: others,
            _init_net: init_net,
            _client: client,
            _addr_events: addr_events,
            _faults: faults,
            _late_wakeups: late_wakeups,
        })
    }
}
