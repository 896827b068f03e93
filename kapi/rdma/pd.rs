// SPDX-License-Identifier: GPL-2.0

//! Protection domains, and the MRs that a device has refused to deregister.

use super::{
    device::IbDevice,
    domain::Domain,
    raw_mr::RawMr, //
};
use crate::{
    bindings,
    kapi::sync::{
        new_spinlock_bh,
        Fifo,
        Item,
        SpinLockBh, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// A protection domain. Memory of it can be used by its queue pairs only. Dropping it sleeps.
///
/// # Invariants
///
/// `raw` is a protection domain of `device` that `self` owns. The MRs in `kept` belong to it.
#[pin_data(PinnedDrop)]
pub(crate) struct Pd {
    raw: NonNull<bindings::ib_pd>,
    domain: Arc<Domain>,
    /// MRs that the device has refused to deregister. `None` after [`Self::release_kept`].
    ///
    /// Their memory holds a reference to `self`. [`Self::release_kept`] breaks this cycle.
    #[pin]
    kept: SpinLockBh<Option<Fifo<RawMr>>>,
    /// The device has refused the final attempt to deregister an MR.
    stuck: Atomic<bool>,
    device: ARef<IbDevice>,
}

// SAFETY: A protection domain may be used and destroyed from any thread.
unsafe impl Send for Pd {}
// SAFETY: The kernel's protection domain may be used from several threads at once. All else that
// changes is behind a lock or atomic.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or the error of the device.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(device: &IbDevice) -> Result<Arc<Self>> {
        let domain = Arc::new(Domain::new(), GFP_KERNEL)?;
        let alloc = || {
            // SAFETY: An `IbDevice` is registered.
            let raw = from_err_ptr(unsafe { bindings::rds_rust_ib_alloc_pd(device.as_raw()) })?;
            NonNull::new(raw).ok_or(ENOMEM)
        };
        // INVARIANT: The protection domain is new and has no other owner. It is allocated after the
        // memory for `self`, and no step after it can fail.
        Arc::pin_init(
            try_pin_init!(Self {
                raw: alloc()?,
                domain,
                kept <- new_spinlock_bh!(Some(Fifo::new()), "rdma_pd"),
                stuck: Atomic::new(false),
                device: device.into(),
            }? Error),
            GFP_KERNEL,
        )
    }

    pub(crate) fn device(&self) -> &IbDevice {
        &self.device
    }

    /// Returns `true` if the device has refused an atomic operation, plain or masked.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn refuses_atomics(&self, masked: bool) -> bool {
        self.domain.refuses_atomics(masked)
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    /// Returns the lkey for all memory that is mapped for the device.
    pub(super) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The protection domain is alive by the type invariants.
        unsafe { bindings::rds_rust_ib_pd_lkey(self.as_raw()) }
    }
}

impl Pd {
    /// Keeps an MR that the device has refused to deregister, together with its memory.
    ///
    /// After [`Self::release_kept`] there are no queue pairs any more, so the memory is released
    /// instead.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn keep(&self, region: Item<RawMr>) {
        let mut kept = self.kept.lock();
        if let Some(kept) = &mut *kept {
            kept.push_back(region);
            return;
        }
        drop(kept);
        self.give_back(region);
    }

    /// Deregisters an MR if the device permits it, and releases the memory in any case. There must
    /// be no queue pair.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn give_back(&self, mut region: Item<RawMr>) {
        if region.end().is_err() {
            self.stuck.store(true, ordering::Relaxed);
        }
    }

    /// Returns the number of MRs that are kept.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().as_ref().map_or(0, Fifo::len)
    }

    /// Releases the memory of MRs that are kept.
    ///
    /// Peers and operations access an MR only through queue pairs. So the memory is safe to release
    /// when there are none, even if the device still holds the MR.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a queue pair; nothing is released then.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn release_kept(&self) -> Result {
        self.domain.close()?;
        let mut kept = self.kept.lock().take().unwrap_or_else(Fifo::new);
        while let Some(region) = kept.pop_front() {
            self.give_back(region);
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for Pd {
    fn drop(self: Pin<&mut Self>) {
        // Queue pairs hold a reference to `self`, so there are none, and this cannot fail.
        let _ = self.release_kept();
        if self.stuck.load(ordering::Relaxed) {
            // The protection domain is leaked: the kernel would warn that it still has MRs.
            let name = |name: &CStr| {
                pr_err!(
                    "{}: leaking a protection domain: the device did not deregister its memory\n",
                    name
                )
            };
            return self.device.with_name(name);
        }
        // SAFETY: By the type invariants `self` owns the protection domain. Its queue pairs and MRs
        // hold references to `self`, so there are none.
        unsafe { bindings::rds_rust_ib_dealloc_pd(self.as_raw()) };
    }
}
