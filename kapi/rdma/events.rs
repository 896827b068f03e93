// SPDX-License-Identifier: GPL-2.0

//! Notification of changes to the ports of an RDMA device: addresses and state.

use super::device::IbDevice;
use crate::{
    bindings,
    kapi::net::Watch, //
};
use core::marker::PhantomPinned;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    types::Opaque, //
};

/// A registered [`Watch`] for the ports of a device, including the GID table.
///
/// Dropping it sleeps; the watcher is not called after that. It holds a reference to the device, so
/// it must be dropped when the device is removed.
///
/// # Invariants
///
/// `raw` is registered with `device` while `self` exists.
#[repr(C)]
#[pin_data(PinnedDrop)]
pub(crate) struct PortWatch<W: Watch> {
    /// The first field, so that the callback can cast it to `Self`.
    #[pin]
    raw: Opaque<bindings::ib_event_handler>,
    watcher: Arc<W>,
    device: ARef<IbDevice>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The handler may be unregistered on any thread, and `W` may be used from all of them.
unsafe impl<W: Watch> Send for PortWatch<W> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<W: Watch> Sync for PortWatch<W> {}

impl<W: Watch> PortWatch<W> {
    /// Registers `watcher`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(device: &IbDevice, watcher: &Arc<W>) -> Result<Pin<KBox<Self>>> {
        let this = KBox::pin_init(
            pin_init!(Self {
                raw <- Opaque::ffi_init(|slot: *mut bindings::ib_event_handler| {
                    let raw = bindings::ib_event_handler {
                        device: device.as_raw(),
                        handler: Some(Self::called),
                        // Registration initialises the list node.
                        ..Default::default()
                    };
                    // SAFETY: The slot is uninitialised and may be written.
                    unsafe { slot.write(raw) };
                }),
                watcher: watcher.clone(),
                device: device.into(),
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: Registered here.
        // SAFETY: `raw` is initialised, and is pinned until `drop` has unregistered it. The
        // reference in `device` keeps the device registered as long.
        unsafe { bindings::ib_register_event_handler(this.raw.get()) };
        Ok(this)
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as the handler of a registered watch of type `W`.
    unsafe extern "C" fn called(
        handler: *mut bindings::ib_event_handler,
        _event: *mut bindings::ib_event,
    ) {
        // SAFETY: `raw` is the first field of a watch that lives while it is registered.
        let this = unsafe { &*handler.cast::<Self>() };
        // No event type is filtered out: events are rare, and each may change the addresses of a
        // port.
        this.watcher.changed();
    }
}

#[pinned_drop]
impl<W: Watch> PinnedDrop for PortWatch<W> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants the handler is registered.
        unsafe { bindings::ib_unregister_event_handler(self.raw.get()) };
    }
}
