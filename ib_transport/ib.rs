// SPDX-License-Identifier: GPL-2.0

//! The devices that the transport can use, what endpoints need of them, and the transport of each
//! network namespace.

use super::{
    device::{
        Device,
        DeviceUse, //
    },
    endpoint_list::Hold,
    endpoint_shared::EndpointShared,
    quirks::{
        DeferredBudget,
        DeferredCmId,
        DeferredDestroy, //
    },
    IbTunables, //
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
        ConnKey,
        Node, //
    },
    kapi::{
        errno::Errno,
        net::{
            IpBits,
            NetRef, //
        },
        rdma::{
            DeviceId,
            IbDevice,
            IncomingRequest, //
        },
        shrinker::Shrinker,
        sync::{
            new_spinlock_bh,
            Item,
            Section,
            SpinLockBh, //
        }, //
    },
    proto::wire::FragmentSize,
    recv_pool::{
        PoolShared,
        Pools,
        Unmapped, //
    }, //
};
use core::{
    net::Ipv6Addr,
    ops::Deref, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::DelayedWork, //
};

/// The devices that the transport can use, and what all network namespaces share.
#[pin_data]
pub(crate) struct IbShared {
    pub(super) owners: Arc<AddrOwners>,
    #[pin]
    pub(super) devices: SpinLockBh<KVec<Arc<Device>>>,
    pub(super) pool_shared: PoolShared,
    /// Fragment size to propose to peers.
    pub(super) fragment: FragmentSize,
    pub(super) tunables: Arc<IbTunables>,
    /// Memory of messages that wait while no device has their address.
    pub(super) unmapped: Unmapped,
    _shrinker: Shrinker<Pools>,
    pub(super) parking: Arc<DeferredDestroy>,
}

impl IbShared {
    /// Creates the state without devices. Registering the client adds them. May sleep.
    pub(crate) fn new(
        owners: Arc<AddrOwners>,
        pool_shared: PoolShared,
        fragment: FragmentSize,
        tunables: Arc<IbTunables>,
    ) -> Result<Arc<Self>> {
        let unmapped = Unmapped::new(&pool_shared)?;
        Arc::pin_init(
            try_pin_init!(Self {
                owners,
                devices <- new_spinlock_bh!(KVec::new(), "IbShared::devices"),
                pool_shared,
                fragment,
                tunables,
                _shrinker: Shrinker::new(unmapped.pools().clone())?,
                unmapped,
                parking: DeferredDestroy::new()?,
            }),
            GFP_KERNEL,
        )
    }

    fn find(&self, device: &IbDevice) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        devices.iter().find(|known| known.is(device)).cloned()
    }

    /// Makes the removal of a device wait, and returns its pools. Returns `None` if the transport
    /// does not use the device, or it is being removed. Any context except hard interrupt.
    pub(super) fn hold(&self, device: &IbDevice) -> Option<(Hold, Arc<Pools>)> {
        let device = self.find(device)?;
        Some((device.endpoints.hold()?, device.pools.clone()))
    }

    /// Makes the removal of any device wait for the caller, whose new CM id has no device yet.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn section(&self) -> Result<Section> {
        self.owners.sections().open()
    }

    /// Returns the pools of a device if the transport uses it. Any context.
    #[cfg(rds_kunit)]
    pub(super) fn pools_of(&self, device: &IbDevice) -> Option<Arc<Pools>> {
        Some(self.find(device)?.pools.clone())
    }
}

/// Listeners, and the node of the connections.
pub(super) struct ServedNode {
    pub(super) node: Arc<Node>,
    /// `None` if they cannot be created, which is tried again.
    pub(super) listeners: Option<Listeners<Ib>>,
}

/// State of the service. There is none in the initial namespace, whose listeners are permanent.
pub(super) struct Service {
    /// Number of sockets that are bound to addresses of devices.
    pub(super) sockets: usize,
    pub(super) active: Option<ServedNode>,
    /// The failure to listen is logged.
    pub(super) failure_logged: bool,
    /// Number of times that the end of CM ids was deferred.
    pub(super) waits: u32,
    pub(super) events: Option<AddrEvents>,
    /// The namespace or the module ends.
    pub(super) ended: bool,
}

impl Service {
    const fn new() -> Self {
        Self {
            sockets: 0,
            active: None,
            failure_logged: false,
            waits: 0,
            events: None,
            ended: false,
        }
    }
}

/// The transport in a network namespace.
#[pin_data]
pub(crate) struct Ib {
    pub(super) shared: Arc<IbShared>,
    pub(super) net: NetRef,
    /// The addresses that devices have. Outside of the initial namespace only set when a program
    /// may use one, so a machine without a device needs no memory for them.
    pub(super) addrs: SetOnce<Arc<LocalAddrs>>,
    /// Connections may be made: see [`super::netns`].
    pub(super) is_open: Atomic<bool>,
    #[pin]
    pub(super) service: Mutex<Service>,
    #[pin]
    pub(super) linger: DelayedWork<Self>,
    /// The number of CM ids in [`IbShared::parking`].
    pub(super) deferred: DeferredBudget,
}

impl Deref for Ib {
    type Target = IbShared;

    #[inline]
    fn deref(&self) -> &IbShared {
        &self.shared
    }
}

impl Ib {
    /// Creates the transport of the initial namespace, with all addresses of that.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn of_init(
        shared: &Arc<IbShared>,
        net: NetRef,
        addrs: Arc<LocalAddrs>,
    ) -> Result<Arc<Self>> {
        let this = Self::of_other(shared, net)?;
        let _: bool = this.addrs.populate(addrs);
        this.is_open.store(true, Relaxed);
        Ok(this)
    }

    /// Creates the transport of another namespace.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn of_other(shared: &Arc<IbShared>, net: NetRef) -> Result<Arc<Self>> {
        let deferred = DeferredBudget::new(net.id())?;
        Arc::pin_init(
            pin_init!(Self {
                shared: shared.clone(),
                deferred,
                net,
                addrs: SetOnce::new(),
                is_open: Atomic::new(false),
                service <- new_mutex!(Service::new(), "Ib::service"),
                linger <- kernel::new_delayed_work!("Ib::linger"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Checks that connections may be made.
    ///
    /// # Errors
    ///
    /// - `ENETDOWN` if no socket of the namespace uses the transport.
    ///
    /// # Context
    ///
    /// Any context. The worker of the connection has its lock, see [`super::netns`].
    pub(super) fn check_open(&self) -> Result {
        match self.is_open.load(Relaxed) {
            true => Ok(()),
            false => Err(Errno::NetDown.into()),
        }
    }

    /// Defers the rejection of a request until its network device is up. Returns `false` if it is
    /// rejected at once: no memory, too many requests, or no device. May sleep.
    pub(super) fn park_request(self: &Arc<Self>, request: IncomingRequest) -> bool {
        let Some(rdma) = request.bound_device() else {
            return false;
        };
        let Ok(request) = DeferredCmId::request(rdma.id(), &self.deferred, request) else {
            return false;
        };
        let devices = self.devices.lock();
        // A removed device has no work item to check the request again.
        let Some(device) = devices.iter().find(|known| known.is(&rdma)) else {
            drop(devices);
            // The rejection sleeps.
            drop(request);
            return false;
        };
        self.park(device, request);
        true
    }

    /// Defers the destruction of a CM id of a device that is not removed meanwhile. Any context.
    pub(super) fn park(self: &Arc<Self>, device: &Arc<Device>, id: Item<DeferredCmId>) {
        self.parking.park(id);
        // Not earlier: a check that runs before would miss the id.
        device.service_later();
        self.end_later();
    }

    /// Returns `true` in the initial namespace, which shows what is of the machine.
    pub(super) fn is_init(&self) -> bool {
        self.net.id().is_init()
    }

    /// Registers an endpoint as a user of its device.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the transport does not use the device, or it is being removed.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn use_device(
        &self,
        device: &IbDevice,
        shared: &Arc<EndpointShared>,
    ) -> Result<DeviceUse> {
        let device = self.find(device).ok_or(ENODEV)?;
        let number = device.endpoints.enter(shared)?;
        // The address may have moved before the endpoint was on the list.
        if let Some(addrs) = self.addrs.as_ref() {
            shared.check_address(addrs, device.id);
        }
        Ok(DeviceUse { device, number })
    }

    /// Returns the device of a connection's local address, as far as certain. May sleep.
    pub(super) fn device_of_addr(&self, key: &ConnKey) -> Option<Option<DeviceId>> {
        let addrs = self.addrs.as_ref()?;
        addrs.certain_device_of(IpBits::new(key.laddr), key.scope)
    }

    /// Returns the device that has a local address.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn device_of(&self, addr: Ipv6Addr, scope: u32) -> Result<Option<Arc<Device>>> {
        let Some(addrs) = self.addrs.as_ref() else {
            return Ok(None);
        };
        let id = addrs.device_of(IpBits::new(addr), scope)?;
        let devices = self.devices.lock();
        let device = devices.iter().find(|device| Some(device.id) == id);
        Ok(device.cloned())
    }
}
