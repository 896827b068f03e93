// SPDX-License-Identifier: GPL-2.0

//! The devices that the transport can use, and what endpoints need of them.

use super::{
    device::{
        Device,
        DeviceUse, //
    },
    endpoint_list::Hold,
    endpoint_shared::EndpointShared,
    quirks::{
        DeferredCmId,
        DeferredDestroy, //
    },
    IbTunables, //
};
use crate::{
    cm::laddr::LocalAddrs,
    conn::ConnKey,
    kapi::{
        net::IpBits,
        rdma::{
            DeviceId,
            IbDevice,
            IncomingRequest, //
        },
        shrinker::Shrinker,
        sync::{
            new_spinlock_bh,
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
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The transport: the devices that it can use.
#[pin_data]
pub(crate) struct Ib {
    pub(super) addrs: Arc<LocalAddrs>,
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

impl Ib {
    /// Creates a transport without devices. Registering the client adds them. May sleep.
    pub(crate) fn new(
        addrs: Arc<LocalAddrs>,
        pool_shared: PoolShared,
        fragment: FragmentSize,
        tunables: Arc<IbTunables>,
    ) -> Result<Arc<Self>> {
        let unmapped = Unmapped::new(&pool_shared)?;
        Arc::pin_init(
            try_pin_init!(Self {
                addrs,
                devices <- new_spinlock_bh!(KVec::new(), "Ib::devices"),
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

    /// Defers the rejection of a request until its network device is up. Returns `false` if it is
    /// rejected at once: no memory, too many requests, or no device. May sleep.
    pub(super) fn park(&self, request: IncomingRequest) -> bool {
        let Some(rdma) = request.device() else {
            return false;
        };
        let Ok(request) = DeferredCmId::request(rdma.id(), request) else {
            return false;
        };
        let devices = self.devices.lock();
        // A removed device has no work item to check the request again.
        let device = devices.iter().find(|known| known.is(&rdma));
        let refused = match device {
            Some(device) => {
                let refused = self.parking.park(request);
                // Not earlier: a check that runs before would miss the request.
                device.service_later();
                refused
            }
            None => Some(request),
        };
        drop(devices);
        refused.is_none()
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
        self.addrs.sections().open()
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
        shared.check_address(&self.addrs, device.id);
        Ok(DeviceUse { device, number })
    }

    /// Returns the device of a connection's local address, as far as certain. May sleep.
    pub(super) fn device_of_addr(&self, key: &ConnKey) -> Option<Option<DeviceId>> {
        self.addrs
            .certain_device_of(IpBits::new(key.laddr), key.scope)
    }

    /// Returns the pools of a device if the transport uses it. Any context.
    #[cfg(rds_kunit)]
    pub(super) fn pools_of(&self, device: &IbDevice) -> Option<Arc<Pools>> {
        Some(self.find(device)?.pools.clone())
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
        let id = self.addrs.device_of(IpBits::new(addr), scope)?;
        let devices = self.devices.lock();
        let device = devices.iter().find(|device| Some(device.id) == id);
        Ok(device.cloned())
    }
}
