// SPDX-License-Identifier: GPL-2.0

//! Protection domains, and what devices keep of their regions.

use super::{device::Device, domain::Domain, mr::RawMr};
use crate::{
    bindings,
    kapi::sync::{new_spinlock_bh, Fifo, Item, SpinLockBh},
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// A protection domain: which memory which queue pairs may use. Dropping it sleeps.
///
/// # Invariants
///
/// `raw` is a protection domain of `device` that `self` owns. The regions in `kept` are its.
#[pin_data(PinnedDrop)]
pub(crate) struct Pd {
    raw: NonNull<bindings::ib_pd>,
    domain: Arc<Domain>,
    /// Regions that the device has refused to end. Their memory holds `self`: [`Self::release_kept`] cuts the cycle,
    /// and from then on none is kept.
    #[pin]
    kept: SpinLockBh<Option<Fifo<RawMr>>>,
    /// The device has refused for good.
    stuck: Atomic<bool>,
    device: ARef<Device>,
}

// SAFETY: A protection domain may be used and destroyed from any thread.
unsafe impl Send for Pd {}
// SAFETY: The kernel's protection domain may be used from several threads at a time; what changes besides is a lock and an
// atomic.
unsafe impl Sync for Pd {}

impl Pd {
    /// May sleep.
    pub(crate) fn new(device: &Device) -> Result<Arc<Self>> {
        let domain = Arc::new(Domain::new(), GFP_KERNEL)?;
        let alloc = || {
            // SAFETY: A `Device` is registered.
            let raw = from_err_ptr(unsafe { bindings::rds_ib_alloc_pd(device.as_raw()) })?;
            NonNull::new(raw).ok_or(ENOMEM)
        };
        // INVARIANT: New, and nobody else's. It is made when there is memory for `self`, and nothing fails after it.
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

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the device has refused an atomic operation, plain or with masks. Any context.
    pub(crate) fn refuses_atomics(&self, masked: bool) -> bool {
        self.domain.refuses_atomics(masked)
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    /// The key for local access to all memory that is mapped for the device.
    pub(super) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The protection domain is alive by the type invariants.
        unsafe { bindings::rds_ib_pd_lkey(self.as_raw()) }
    }
}

impl Pd {
    /// Keeps a region that the device has refused to end, and its memory; not if all were given back, as there are no queue
    /// pairs then. Sleeps.
    pub(super) fn keep(&self, region: Item<RawMr>) {
        let mut kept = self.kept.lock();
        if let Some(kept) = &mut *kept {
            kept.push_back(region);
            return;
        }
        drop(kept);
        self.give_back(region);
    }

    /// Ends a region if the device lets it, and gives its memory back. There is no queue pair. Sleeps.
    fn give_back(&self, mut region: Item<RawMr>) {
        if region.end().is_err() {
            self.stuck.store(true, ordering::Relaxed);
        }
    }

    /// How many are kept. Any context but a hard interrupt.
    pub(crate) fn kept(&self) -> usize {
        self.kept.lock().as_ref().map_or(0, Fifo::len)
    }

    /// Gives back the memory of regions that are kept: whatever the device thinks of them, peers and operations get at them
    /// through queue pairs only, and there are none any more. Fails with EBUSY, and does nothing, if there is one. Sleeps.
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
        // Its queue pairs hold a reference to `self`, so there are none, and this does not fail.
        let _ = self.release_kept();
        if self.stuck.load(ordering::Relaxed) {
            // The kernel would warn that it has regions.
            let name = |name: &CStr| pr_err!("{}: a protection domain is left\n", name);
            return self.device.with_name(name);
        }
        // SAFETY: By the type invariants it is ours. As above, it has no queue pairs; its regions hold a reference, too.
        unsafe { bindings::rds_ib_dealloc_pd(self.as_raw()) };
    }
}
