// SPDX-License-Identifier: GPL-2.0

//! RDMA devices that come and go: the transport as a client of the RDMA core.
//!
//! A device that is added gets its pools first, and its addresses last. Removal goes the other way:
//! nothing finds the device any more, then all use of it ends, then its memory is unmapped.

use super::{
    device::Device,
    ib::IbShared, //
};
use crate::{
    cm::laddr::DeviceAddrs,
    kapi::rdma::{
        Client,
        ClientCell,
        IbDevice, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// State of a device for the client callbacks. Fields are dropped in this order.
pub(crate) struct Member {
    _addrs: DeviceAddrs,
    device: Arc<Device>,
}

/// Cell in which the callbacks find the registered client.
static CELL: ClientCell = ClientCell::new();

impl IbShared {
    /// Ends all use of a device to which no socket can be bound any more. Sleeps.
    fn end(&self, rdma: &IbDevice, device: &Arc<Device>) {
        self.forget(device);
        // This also waits for requests that no worker has taken. The CM would release the device
        // only some time after it reports that an id is gone, which may be too late.
        device.close();
        // Wait for CM ids that had no device yet when their creation began.
        self.owners.sections().synchronize();
        // Users of the device and its work item are gone. The end of a namespace may have taken
        // others, and destroys them in a section.
        self.parking.clear(device.id);
        self.owners.sections().synchronize();
        // `close` has waited for all queue pairs, so an error is a defect.
        if let Err(error) = device.pd.release_kept() {
            rdma.with_name(|name| {
                pr_err!("{}: removed while queue pairs use it: {:?}\n", name, error)
            });
        }
        if let Err(error) = device.pools.revoke() {
            // `close` has waited for all queue pairs, so this is a defect.
            rdma.with_name(|name| {
                pr_err!(
                    "{}: removed while buffers are mapped for it: {:?}\n",
                    name,
                    error
                )
            });
        }
    }

    /// Removes a device from the list.
    fn forget(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        let at = devices.iter().position(|known| Arc::ptr_eq(known, device));
        let gone = at.and_then(|at| devices.remove(at).ok());
        drop(devices);
        drop(gone);
    }
}

impl Client for IbShared {
    const NAME: &'static CStr = c"rds_rust";
    type Data = Member;

    fn cell() -> &'static ClientCell {
        &CELL
    }

    fn added(&self, rdma: &IbDevice) -> Result<Option<Arc<Member>>> {
        if !rdma.has_reliable_connections() {
            return Ok(None);
        }
        let unmapped = self.unmapped.pools();
        let device = Device::new(
            rdma,
            unmapped,
            &self.owners,
            &self.pool_shared,
            &self.tunables,
            &self.parking,
        )?;
        self.devices.lock().push(device.clone(), GFP_ATOMIC)?;
        // Only now: a device that is found by an address must be on the list.
        let addrs = self.owners.add_device(rdma, device.endpoints.clone());
        let member = addrs.and_then(|addrs| {
            let member = Member {
                _addrs: addrs,
                device: device.clone(),
            };
            Ok(Arc::new(member, GFP_KERNEL)?)
        });
        if member.is_err() {
            self.end(rdma, &device);
        }
        rdma.with_name(|name| match &member {
            // The text is that of C RDS, because programs search for it.
            Ok(_) => pr_info!("RDS/IB: {}: added\n", name),
            Err(error) => pr_err!("{}: cannot be used: {:?}\n", name, error),
        });
        member.map(Some)
    }

    fn removed(&self, rdma: &IbDevice, member: Arc<Member>) {
        let device = member.device.clone();
        // From here on no socket can be bound to an address of the device.
        drop(member);
        self.end(rdma, &device);
        rdma.with_name(|name| pr_info!("{}: removed\n", name));
    }
}
