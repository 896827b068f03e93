// SPDX-License-Identifier: GPL-2.0

//! Lookup of the RDMA device that has a local address.

use super::{
    addr::Storage,
    device::IbDevice, //
};
use crate::{
    bindings,
    kapi::net::NetRef, //
};
use core::{
    net::SocketAddr,
    ptr, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::aref::ARef, //
};

/// Returns the device that has a local address of a network namespace, as the CM sees it. Creates,
/// binds and destroys a CM id.
///
/// # Errors
///
/// - `ENODEV` if no device has the address, or the namespace ends. All other errors leave that
///   open.
/// - `EAGAIN` if the device is being removed.
/// - `EADDRNOTAVAIL` if no port is free or the address has just been removed.
/// - `ENOMEM` if there is no memory.
///
/// # Context
///
/// May sleep. Takes locks of the CM, so it must not be called from a CM event handler.
pub(crate) fn local_device(net: &NetRef, addr: &SocketAddr) -> Result<ARef<IbDevice>> {
    extern "C" fn no_event(
        _id: *mut bindings::rdma_cm_id,
        _event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        0
    }

    let net = net.try_use()?;
    // SAFETY: The namespace is alive. The handler uses no context.
    let id =
        unsafe { bindings::rds_rust_rdma_create_id(net.as_raw(), Some(no_event), ptr::null_mut()) };
    let id = from_err_ptr(id)?;
    let mut storage = Storage::new(addr);
    // SAFETY: The id is alive; the CM copies the address.
    let bound = to_result(unsafe { bindings::rdma_bind_addr(id, storage.as_mut_ptr()) });
    // SAFETY: The id is alive; it has a device if it is bound to an address of a device.
    let device = unsafe { bindings::rds_rust_rdma_device(id) };
    let device = match bound {
        Ok(()) if device.is_null() => Err(ENODEV),
        // SAFETY: The id keeps the memory of its device.
        Ok(()) => unsafe { IbDevice::try_get(device) }.ok_or(EAGAIN),
        Err(error) => Err(error),
    };
    // SAFETY: The id belongs to this function, which is not its event handler.
    unsafe { bindings::rdma_destroy_id(id) };
    device
}
