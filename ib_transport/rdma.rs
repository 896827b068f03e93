// SPDX-License-Identifier: GPL-2.0

//! RDMA as a part of the module: its state and its registrations.
//!
//! A module without RDMA has `absent.rs` in place of this folder.

use super::{
    ib::Ib,
    tunables::IbTunables, //
};
use crate::{
    cm::{
        laddr::{
            AddrEvents,
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
    _client: Pin<KBox<ClientRegistration<Ib>>>,
    _addr_events: AddrEvents,
    _faults: FaultInjection,
}

/// The transport, and the state that it uses.
pub(crate) struct Rdma {
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
    pub(crate) fn new(pool_shared: PoolShared) -> Result<Self> {
        let addrs = LocalAddrs::new(pool_shared.queue.clone())?;
        let tunables = IbTunables::new(pool_shared.most.clone(), params::rds_ib_retry_count());
        let tunables = Arc::new(tunables, GFP_KERNEL)?;
        let ib = Ib::new(addrs.clone(), pool_shared, max_fragment(), tunables.clone())?;
        Ok(Self {
            ib,
            addrs,
            tunables,
        })
    }

    /// Adds the transport to those of a node.
    pub(crate) fn with(&self, transports: Transports) -> Transports {
        transports.with(self.ib.clone())
    }

    /// Notes that a node does not have the transport.
    pub(crate) fn without(&self, transports: Transports) -> Transports {
        transports.without(self.ib.clone())
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
            _client: ClientRegistration::new(self.ib.clone())?,
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
