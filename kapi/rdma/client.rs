// SPDX-License-Identifier: GPL-2.0

//! Notification of RDMA devices that are added and removed (`struct ib_client`).

use super::device::IbDevice;
use crate::bindings;
use core::{
    marker::PhantomPinned,
    ptr, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// Static cell through which the C callbacks find a [`Client`], because they are passed only a
/// device. It serves one registration at a time.
pub(crate) struct ClientCell(Atomic<usize>);

impl ClientCell {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }
}

/// Handler for devices that are added or removed.
///
/// # Context
///
/// Both callbacks run in process context and may sleep.
pub(crate) trait Client: Send + Sync + 'static {
    /// Name in the kernel's list of RDMA clients.
    const NAME: &'static CStr;

    /// Data kept for a device from [`Self::added`] until [`Self::removed`].
    type Data: Send + Sync + 'static;

    /// Returns the cell of this client: a `static` that no other client uses.
    fn cell() -> &'static ClientCell;

    /// Handles a device that was added, or that existed when the client registered.
    ///
    /// `Ok(None)` and errors mean that the device is not used. [`Self::removed`] is not called for
    /// it then.
    fn added(&self, device: &IbDevice) -> Result<Option<Arc<Self::Data>>>;

    /// Handles the removal of a device. All objects of the device must be dropped when this
    /// returns: see the documentation of the [parent module](super).
    fn removed(&self, device: &IbDevice, data: Arc<Self::Data>);
}

/// A registered [`Client`]. Dropping it calls [`Client::removed`] for each device, and sleeps.
///
/// # Invariants
///
/// The cell of `C` holds the address of `self` from before `raw` is registered until after it is
/// unregistered.
#[pin_data(PinnedDrop)]
pub(crate) struct ClientRegistration<C: Client> {
    client: Arc<C>,
    #[pin]
    raw: Opaque<bindings::ib_client>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The registration may be dropped on any thread, and `C` may be used from all of them.
unsafe impl<C: Client> Send for ClientRegistration<C> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<C: Client> Sync for ClientRegistration<C> {}

impl<C: Client> ClientRegistration<C> {
    /// Registers `client`, and calls [`Client::added`] for each existing device.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if the cell of `C` is in use.
    /// - `ENOMEM` if there is no memory, or another error of the RDMA core.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(client: Arc<C>) -> Result<Pin<KBox<Self>>> {
        let this = KBox::pin_init(
            pin_init!(Self {
                client,
                raw <- Opaque::ffi_init(|slot: *mut bindings::ib_client| {
                    let raw = bindings::ib_client {
                        name: C::NAME.as_char_ptr(),
                        add: Some(Self::add),
                        remove: Some(Self::remove),
                        ..Default::default()
                    };
                    // SAFETY: The slot is uninitialised and may be written.
                    unsafe { slot.write(raw) };
                }),
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        let address = ptr::from_ref(&*this) as usize;
        if C::cell().0.cmpxchg(0, address, ordering::Full).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: `raw` is initialised and pinned, and `drop` unregisters it before its memory is
        // freed. The callbacks find `this` in the cell.
        let ret = unsafe { bindings::ib_register_client(this.raw.get()) };
        if ret != 0 {
            // The RDMA core has already undone a failed registration.
            C::cell().0.store(0, ordering::Relaxed);
        }
        to_result(ret)?;
        Ok(this)
    }

    /// Returns the registration to which the callbacks belong.
    ///
    /// # Safety
    ///
    /// Only for the callbacks of a registered client of type `C`, and for their duration.
    unsafe fn current<'a>() -> &'a Self {
        let address = C::cell().0.load(ordering::Relaxed);
        // SAFETY: By the type invariants the cell holds the address of the registration while its
        // callbacks can run. No other registration can use the cell meanwhile.
        unsafe { &*(address as *const Self) }
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as `ib_client.add` of a registered client of type `C`.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: This is a callback of `C`.
        let this = unsafe { Self::current() };
        // SAFETY: The device stays registered during the callback.
        from_result(|| this.added(unsafe { IbDevice::from_raw(device) }))
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as `ib_client.remove` of a registered client of type `C`.
    unsafe extern "C" fn remove(device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: This is a callback of `C`.
        let this = unsafe { Self::current() };
        // SAFETY: The device stays registered during the callback.
        let device = unsafe { IbDevice::from_raw(device) };
        // SAFETY: `data` is what `added` stored for this client. It is not used after this call.
        unsafe { this.removed(device, data.cast()) };
    }

    fn added(&self, device: &IbDevice) -> Result<c_int> {
        let Some(data) = self.client.added(device)? else {
            return Err(ENODEV);
        };
        let data = Arc::into_raw(data).cast_mut().cast();
        // SAFETY: The device and the client are registered. `removed` takes the reference back.
        unsafe { bindings::ib_set_client_data(device.as_raw(), self.raw.get(), data) };
        Ok(0)
    }

    /// Passes a removal to the client.
    ///
    /// # Safety
    ///
    /// `data` must come from [`Self::added`], and must not have been passed to this function
    /// before.
    unsafe fn removed(&self, device: &IbDevice, data: *mut C::Data) {
        // SAFETY: `added` created the pointer with `Arc::into_raw`. The caller passes on that
        // reference.
        self.client.removed(device, unsafe { Arc::from_raw(data) });
    }
}

#[pinned_drop]
impl<C: Client> PinnedDrop for ClientRegistration<C> {
    fn drop(self: Pin<&mut Self>) {
        let address = ptr::from_ref(&*self) as usize;
        // If `new` failed, the cell does not hold this address.
        if C::cell().0.load(ordering::Relaxed) == address {
            // SAFETY: By the type invariants `raw` is registered. After this call no callback is
            // running or will run.
            unsafe { bindings::ib_unregister_client(self.raw.get()) };
            C::cell().0.store(0, ordering::Relaxed);
        }
    }
}
