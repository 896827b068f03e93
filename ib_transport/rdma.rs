// SPDX-License-Identifier: GPL-2.0

//! RDMA as a part of the module: its state, its registrations, and its service of namespaces.
//!
//! A module without RDMA has `absent.rs` in place of this folder.

use super::{
    ib::{
        Ib,
        IbShared, //
    },
    netns::IbService,
    tunables::IbTunables, //
};
use crate::{
    cm::{
        laddr::{
            AddrEvents,
            AddrOwners,
            LocalAddrs, //
        },
        Listeners, //
    },
    conn::{
        Node,
        Transports, //
    },
    kapi::{
        net::NetRef,
        rdma::{
            ClientRegistration,
            FaultInjection, //
        },
        sysctl::Directory, //
    },
    params,
    proto::wire::FragmentSize,
    recv_pool::PoolShared, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The settings in `/proc/sys`.
pub(crate) type RdmaFiles = Directory<IbTunables>;

/// The listeners of a node.
pub(crate) type RdmaListeners = Listeners<Ib>;

/// The ways in which the kernel calls the transport. Fields are dropped in this order: callers
/// before what they call.
pub(crate) struct RdmaDevices {
    _client: Pin<KBox<ClientRegistration<IbShared>>>,
    _addr_events: AddrEvents,
    _faults: FaultInjection,
}

/// The service of a namespace of root other than the initial one. Its end is that of [`IbService`].
pub(crate) struct RdmaService(IbService);

impl RdmaService {
    /// Ends the listeners. The caller stops the node before it drops this.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Adds the transport to those of the node of the namespace.
    pub(crate) fn with(&self, transports: Transports) -> Transports {
        transports.with(self.0 .0.clone())
    }
}

/// State that all namespaces share, and the transport of the initial one.
pub(crate) struct Rdma {
    shared: Arc<IbShared>,
    ib: Arc<Ib>,
    addrs: Arc<LocalAddrs>,
    tunables: Arc<IbTunables>,
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

impl Rdma {
    /// Creates the transport, which has no devices yet.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(net: &NetRef, pool_shared: PoolShared) -> Result<Self> {
        let owners = AddrOwners::new()?;
        let addrs = LocalAddrs::new(net.clone(), &owners)?;
        let tunables = IbTunables::new(pool_shared.most.clone(), params::rds_ib_retry_count());
        let tunables = Arc::new(tunables, GFP_KERNEL)?;
        let shared = IbShared::new(owners, pool_shared, max_fragment(), tunables.clone())?;
        let ib = Ib::of_init(&shared, net.clone(), addrs.clone())?;
        Ok(Self {
            shared,
            ib,
            addrs,
            tunables,
        })
    }

    /// Adds the transport to those of the initial namespace.
    pub(crate) fn with(&self, transports: Transports) -> Transports {
        transports.with(self.ib.clone())
    }

    /// Notes that a node does not have the transport.
    pub(crate) fn without(&self, transports: Transports) -> Transports {
        transports.without(self.ib.clone())
    }

    /// Creates the service of another namespace of root.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn serve(&self, net: NetRef) -> Result<RdmaService> {
        Ok(RdmaService(IbService(Ib::of_other(&self.shared, net)?)))
    }

    /// Registers the transport for devices and addresses.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn register(&self) -> Result<RdmaDevices> {
        let faults = FaultInjection::new();
        let addr_events = AddrEvents::new(&self.addrs)?;
        Ok(RdmaDevices {
            _client: ClientRegistration::new(self.shared.clone())?,
            _addr_events: addr_events,
            _faults: faults,
        })
    }

    /// Listens for peers of a node.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EADDRINUSE` if other software listens on the CM port.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn listen(&self, node: &Arc<Node>) -> Result<RdmaListeners> {
        Listeners::new(node, &self.ib)
    }

    /// Looks up the local addresses, so that the first bind finds its answer cached.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn start(&self) {
        self.addrs.start();
    }

    /// Creates the files of the settings.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EEXIST` if a sysctl of the same name exists.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn files(&self, net: &NetRef) -> Result<RdmaFiles> {
        Directory::new(net, self.tunables.clone())
    }
}
