// SPDX-License-Identifier: GPL-2.0

//! Being told about RDMA devices that come and go.

use super::device::Device;
use crate::bindings;
use core::{marker::PhantomPinned, ptr};
use kernel::{
    error::{from_result, to_result},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
    types::Opaque,
};

/// Where the C callbacks find a [`Client`]: they get a device and nothing else. One registration at
/// a time.
pub(crate) struct ClientCell(Atomic<usize>);

impl ClientCell {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }
}

/// What to do when a device comes or goes. Both are called in process context and may sleep.
pub(crate) trait Client: Send + Sync + 'static {
    /// Name in the kernel's list of RDMA clients.
    const NAME: &'static CStr;

    /// What is kept for a device from [`Self::added`] to [`Self::removed`].
    type Data: Send + Sync + 'static;

    /// The cell of this client: a `static` of its own.
    fn cell() -> &'static ClientCell;

    /// A device appeared, or was there when the client registered. `Ok(None)` and errors mean that
    /// it is not of interest; [`Self::removed`] is not called then.
    fn added(&self, device: &Device) -> Result<Option<Arc<Self::Data>>>;

    /// The device goes. When this returns no object of the device may be left: see the module's
    /// documentation.
    fn removed(&self, device: &Device, data: Arc<Self::Data>);
}

/// A registered [`Client`]. Dropping it sleeps, and calls [`Client::removed`] for every device
/// first.
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
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<C: Client> Sync for ClientRegistration<C> {}

impl<C: Client> ClientRegistration<C> {
    /// Registers `client`; [`Client::added`] is called for the devices that are there. `EBUSY` if
    /// the cell of `C` is in use. May sleep.
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
                    // SAFETY: The slot is ours to fill.
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
        // SAFETY: `raw` is pinned, filled in, and unregistered by `drop` before it goes away; the
        // callbacks find `this` in the cell.
        let ret = unsafe { bindings::ib_register_client(this.raw.get()) };
        if ret != 0 {
            // A failed registration has unregistered itself.
            C::cell().0.store(0, ordering::Relaxed);
        }
        to_result(ret)?;
        Ok(this)
    }

    /// The registration that the callbacks belong to.
    ///
    /// # Safety
    ///
    /// Only for the callbacks of a registered client of type `C`, and for their duration.
    unsafe fn current<'a>() -> &'a Self {
        let address = C::cell().0.load(ordering::Relaxed);
        // SAFETY: By the type invariants the cell holds the address of the registration while its
        // callbacks can run, and no other registration can use the cell meanwhile.
        unsafe { &*(address as *const Self) }
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as `ib_client.add` of a registered client of type `C`.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> c_int {
        // SAFETY: This is a callback of `C`.
        let this = unsafe { Self::current() };
        // SAFETY: The device stays registered during the callback.
        from_result(|| this.added(unsafe { Device::from_raw(device) }))
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as `ib_client.remove` of a registered client of type `C`.
    unsafe extern "C" fn remove(device: *mut bindings::ib_device, data: *mut c_void) {
        // SAFETY: This is a callback of `C`.
        let this = unsafe { Self::current() };
        // SAFETY: The device stays registered during the callback.
        let device = unsafe { Device::from_raw(device) };
        // SAFETY: The data of this client is what `added` stored; this is its last use.
        unsafe { this.removed(device, data.cast()) };
    }

    fn added(&self, device: &Device) -> Result<c_int> {
        let Some(data) = self.client.added(device)? else {
            return Err(ENODEV);
        };
        let data = Arc::into_raw(data).cast_mut().cast();
        // SAFETY: Device and client are registered. `removed` takes the reference back.
        unsafe { bindings::ib_set_client_data(device.as_raw(), self.raw.get(), data) };
        Ok(0)
    }

    /// # Safety
    ///
    /// `data` must come from [`Self::added`] and not have been here before.
    unsafe fn removed(&self, device: &Device, data: *mut C::Data) {
        // SAFETY: `added` made the pointer with `Arc::into_raw`; the caller gives up that
        // reference.
        self.client.removed(device, unsafe { Arc::from_raw(data) });
    }
}

#[pinned_drop]
impl<C: Client> PinnedDrop for ClientRegistration<C> {
    fn drop(self: Pin<&mut Self>) {
        let address = ptr::from_ref(&*self) as usize;
        // A registration that never got so far does not own the cell.
        if C::cell().0.load(ordering::Relaxed) == address {
            // SAFETY: By the type invariants `raw` is registered. When this returns no callback
            // runs or will run.
            unsafe { bindings::ib_unregister_client(self.raw.get()) };
            C::cell().0.store(0, ordering::Relaxed);
        }
    }
}
