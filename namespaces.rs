// SPDX-License-Identifier: GPL-2.0

//! Network namespaces: the node of each, and its teardown.
//!
//! The module makes the node of the initial namespace when it is loaded. Any user can make other
//! namespaces. Each has its settings from its beginning. With TCP one of root has its node and its
//! listener from then on, too, all others from their first socket on. RDMA serves those of root
//! while they have sockets for it, see `ib_transport/netns.rs`. All of them together have limits.

#![deny(unsafe_code)]

use crate::{
    cong::MapRoom,
    conn::{
        self,
        Bounds,
        ConnQuota,
        Node,
        NodeLimits,
        Nodes,
        SocketBudget,
        Transports, //
    },
    ib_transport::{
        Rdma,
        RdmaService, //
    },
    kapi::{
        errno::Errno,
        net::{
            Net,
            NetRef,
            Pernet, //
        },
        sync::OwnedQueue,
        sysctl::{
            Directory,
            Settings, //
        }, //
    },
    loop_transport::Loop,
    msg::PongBudget,
    proto::idle::IdleTimeouts,
    socket::SharedState,
    tcp_transport::{
        Tcp,
        TcpListener,
        TcpShared,
        TcpTunables, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Maximum number of receive positions that a namespace keeps, except for the initial one.
const MOST_POSITIONS: usize = 256;

/// Maximum number of congestion maps of all these namespaces together, 8 KiB each. Their users may
/// have any number of addresses.
const MOST_MAPS: usize = 4096;

/// Maximum number of these maps that one namespace has.
const MOST_MAPS_OF_ONE: usize = 256;

/// Maximum number of sockets that wait at the listeners of all these namespaces together. TCP takes
/// up to 256 KiB for each, or in namespaces of root what its settings allow.
const MOST_SOCKETS: usize = 512;

/// Ends all connections of a node when it is dropped.
pub(crate) struct Connections(pub(crate) Arc<Node>);

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// State that all namespaces share, and from which their nodes are made.
pub(crate) struct Common {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) loopback: Arc<Loop>,
    pub(crate) rdma: Arc<Rdma>,
    pub(crate) tcp: Option<Arc<TcpShared>>,
    pub(crate) bounds: Bounds,
    pub(crate) idle_timeouts: IdleTimeouts,
}

/// The part of a namespace that its first socket makes. Fields are dropped in this order: callers
/// before what they call.
struct Active {
    tcp: Option<Arc<Tcp>>,
    /// `None` without TCP, if there was no memory, or if other software listens on the port.
    listener: Option<TcpListener>,
    connections: Connections,
    /// `None` in namespaces of users.
    rdma: Option<RdmaService>,
}

impl Drop for Active {
    fn drop(&mut self) {
        // No request of a peer may arrive when the connections end.
        if let Some(rdma) = &self.rdma {
            rdma.end();
        }
    }
}

impl Active {
    /// Listens for peers, unless that is done. A failure is counted, and the next socket tries
    /// again.
    fn listen(&mut self) {
        let Some(tcp) = self.tcp.as_ref().filter(|_| self.listener.is_none()) else {
            return;
        };
        self.listener = TcpListener::new(&self.connections.0, tcp).ok();
    }
}

/// A namespace that has not ended. Fields are dropped in this order: the drop is the teardown of
/// the namespace.
struct OpenNamespace {
    _files: Directory<conn::Tunables>,
    _tcp_files: Option<Directory<TcpTunables>>,
    active: Option<Active>,
}

/// Creates the files of settings. The initial namespace has those names, too, so no others have
/// them.
///
/// # Errors
///
/// - `ENOMEM`, which the program gets that makes the namespace.
fn files<S: Settings>(net: &NetRef, settings: Arc<S>) -> Result<Directory<S>> {
    Directory::new(net, settings).map_err(|error| match error {
        EEXIST => ENOMEM,
        error => error,
    })
}

/// A network namespace other than the initial one.
#[pin_data]
struct Namespace {
    net: NetRef,
    tunables: Arc<conn::Tunables>,
    tcp_tunables: Option<Arc<TcpTunables>>,
    /// `None` when the namespace has ended.
    #[pin]
    open: Mutex<Option<OpenNamespace>>,
}

impl Namespace {
    /// Creates a namespace without sockets.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    fn new(net: NetRef, has_tcp: bool) -> Result<Arc<Self>> {
        let tunables = Arc::new(conn::Tunables::of_other(), GFP_KERNEL_ACCOUNT)?;
        let tcp_tunables = match has_tcp {
            true => Some(Arc::new(TcpTunables::new(), GFP_KERNEL_ACCOUNT)?),
            false => None,
        };
        let tcp_files = match &tcp_tunables {
            Some(tunables) => Some(files(&net, tunables.clone())?),
            None => None,
        };
        let open = OpenNamespace {
            _files: files(&net, tunables.clone())?,
            _tcp_files: tcp_files,
            active: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                net,
                tunables,
                tcp_tunables,
                open <- new_mutex!(Some(open), "Namespace::open"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the node, which it makes for the first socket.
    ///
    /// # Errors
    ///
    /// - `ENETDOWN` if the namespace has ended.
    /// - `ENOMEM`
    fn node(&self, others: &Others) -> Result<Arc<Node>> {
        let mut guard = self.open.lock();
        let open: &mut Option<OpenNamespace> = &mut guard;
        let open = open.as_mut().ok_or(Errno::NetDown)?;
        let active = match &mut open.active {
            Some(active) => active,
            none => none.insert(self.activate(others)?),
        };
        active.listen();
        Ok(active.connections.0.clone())
    }

    /// Creates what sockets need.
    fn activate(&self, others: &Others) -> Result<Active> {
        let common = &others.common;
        let loopback = Transports::new().with(common.loopback.clone());
        // Connections over RDMA are not charged to users, and only root gives devices away.
        let rdma = match self.net.owner() {
            None => Some(common.rdma.serve(self.net.clone())?),
            Some(_) => None,
        };
        let mut transports = match &rdma {
            Some(rdma) => rdma.with(loopback),
            None => common.rdma.without(loopback),
        };
        let tcp = match (&common.tcp, &self.tcp_tunables) {
            (Some(shared), Some(tunables)) => {
                Some(Tcp::new(shared, self.net.clone(), tunables.clone())?)
            }
            _ => None,
        };
        if let Some(tcp) = &tcp {
            transports = transports.with(tcp.clone());
        }
        let node = Node::new(
            self.net.clone(),
            common.shared.clone(),
            transports,
            others.workers.clone(),
            self.tunables.clone(),
            others.limits.clone(),
            common.idle_timeouts,
        )?;
        Ok(Active {
            tcp,
            listener: None,
            connections: Connections(node),
            rdma,
        })
    }

    /// Returns the node, if there is one.
    fn active_node(&self) -> Option<Arc<Node>> {
        let open = self.open.lock();
        let active = open.as_ref()?.active.as_ref()?;
        Some(active.connections.0.clone())
    }
}

/// The network namespaces other than the initial one.
#[pin_data]
pub(crate) struct Others {
    common: Common,
    /// Runs the workers of all their connections, and no others.
    workers: Arc<OwnedQueue>,
    limits: NodeLimits,
    #[pin]
    all: Mutex<RBTree<Net, Arc<Namespace>>>,
}

impl Others {
    /// Creates an empty set, whose connections use the workqueue `workers`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(common: Common, workers: Arc<OwnedQueue>) -> Result<Arc<Self>> {
        // The initial namespace has all of its limit in any case.
        let bounds = Bounds {
            all: common.bounds.all / 2,
            per_peer: common.bounds.per_peer,
        };
        let limits = NodeLimits {
            bounds,
            positions: bounds.all.min(MOST_POSITIONS),
            quota: Some(ConnQuota::new(bounds)?),
            pongs: PongBudget::new()?,
            maps: MapRoom::new(MOST_MAPS, MOST_MAPS_OF_ONE)?,
            sockets: SocketBudget::new(MOST_SOCKETS)?,
        };
        Arc::pin_init(
            pin_init!(Self {
                common,
                workers,
                limits,
                all <- new_mutex!(RBTree::new(), "Others::all"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the namespaces that have not ended.
    fn namespaces(&self) -> Result<KVec<Arc<Namespace>>> {
        let mut found = KVec::new();
        for namespace in self.all.lock().values() {
            found.push(namespace.clone(), GFP_KERNEL)?;
        }
        Ok(found)
    }
}

impl Pernet for Others {
    fn begin(&self, net: NetRef) -> Result {
        let id = net.id();
        if id.is_init() {
            return Ok(());
        }
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let is_of_root = net.owner().is_none();
        let namespace = Namespace::new(net, self.common.tcp.is_some())?;
        // Peers may connect before there is a socket, as with C RDS. Users get nothing unasked.
        if is_of_root && self.common.tcp.is_some() {
            namespace.node(self)?;
        }
        let node = place.into_node(id, namespace);
        drop(self.all.lock().insert(node));
        Ok(())
    }

    fn end(&self, net: Net) {
        let gone = self.all.lock().remove(&net);
        let open = gone.and_then(|namespace| namespace.open.lock().take());
        // Without the lock, which code that the teardown waits for may want.
        drop(open);
    }
}

/// The nodes of all network namespaces.
pub(crate) struct AllNodes {
    pub(crate) init: Arc<Node>,
    pub(crate) others: Arc<Others>,
}

impl Nodes for AllNodes {
    fn of(&self, net: Net) -> Result<Arc<Node>> {
        if net.is_init() {
            return Ok(self.init.clone());
        }
        let found = self.others.all.lock().get(&net).cloned();
        found.ok_or(Errno::NetDown)?.node(&self.others)
    }

    fn all(&self) -> Result<KVec<Arc<Node>>> {
        let mut nodes = KVec::new();
        nodes.push(self.init.clone(), GFP_KERNEL)?;
        for namespace in self.others.namespaces()? {
            if let Some(node) = namespace.active_node() {
                nodes.push(node, GFP_KERNEL)?;
            }
        }
        Ok(nodes)
    }
}
