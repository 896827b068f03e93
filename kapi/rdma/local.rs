// SPDX-License-Identifier: GPL-2.0

//! Which device has a local address.

use super::{addr::Storage, device::Device};
use crate::bindings;
use core::{net::SocketAddr, ptr};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::aref::ARef,
};

/// The device that a local address belongs to, as the connection manager sees it. Makes an
/// identifier, binds and destroys it. May sleep; takes the manager's locks, so not for use in a
/// handler of it.
///
/// Fails with ENODEV if no device has the address. All other errors say nothing about that: EAGAIN
/// if the device is going, ENOMEM, EADDRNOTAVAIL if there is no port or the address has just gone.
pub(crate) fn local_device(addr: &SocketAddr) -> Result<ARef<Device>> {
    extern "C" fn no_event(
        _id: *mut bindings::rdma_cm_id,
        _event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        0
    }

    // SAFETY: The handler uses no context.
    let id = unsafe { bindings::rds_rdma_create_id(Some(no_event), ptr::null_mut()) };
    let id = from_err_ptr(id)?;
    let mut storage = Storage::new(addr);
    // SAFETY: The identifier is alive; the manager copies the address.
    let bound = to_result(unsafe { bindings::rdma_bind_addr(id, storage.as_mut_ptr()) });
    // SAFETY: The identifier is alive; it has a device if it is bound to a device's address.
    let device = unsafe { bindings::rds_rdma_device(id) };
    let device = match bound {
        Ok(()) if device.is_null() => Err(ENODEV),
        // SAFETY: The identifier keeps its device's memory.
        Ok(()) => unsafe { Device::try_get(device) }.ok_or(EAGAIN),
        Err(error) => Err(error),
    };
    // SAFETY: The identifier is ours, and this is not its handler.
    unsafe { bindings::rdma_destroy_id(id) };
    device
}
