// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that is mapped for a device.

use super::{
    access::Access,
    domain::Domain,
    pd::Pd,
    raw_mr::MappedMemory, //
};
use crate::{
    bindings,
    kapi::{
        pin::PinnedMemory,
        sync::SpinLockBh, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Pinned memory that is mapped for a device. Dropping it sleeps.
///
/// # Invariants
///
/// `raw` maps the pages of `memory` for the device of `pd`.
pub(crate) struct Mapping {
    pub(super) raw: bindings::rds_ib_mapping,
    pub(super) memory: PinnedMemory,
    pub(super) pd: Arc<Pd>,
}

// SAFETY: A mapping may be unmapped from any thread.
unsafe impl Send for Mapping {}
// SAFETY: A shared reference only permits reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the pages of `memory` for `access`.
    ///
    /// # Errors
    ///
    /// - `EIO` if peers are to access the memory, but the device only reaches it through bounce
    ///   buffers.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, memory: PinnedMemory, access: Access) -> Result<Self> {
        let mut raw = bindings::rds_ib_mapping::default();
        let pages = memory.pages();
        // SAFETY: `pd` keeps the device registered. The pages are pinned, and contain the memory.
        to_result(unsafe {
            bindings::rds_rust_ib_map_pages(
                pd.device().as_raw(),
                pages.as_ptr().cast_mut(),
                pages.len().try_into()?,
                memory.offset(),
                memory.len() as c_ulong,
                memory.is_writable(),
                access.is_of_peers(),
                &mut raw,
            )
        })?;
        // INVARIANT: The pages were mapped just now.
        Ok(Self {
            raw,
            memory,
            pd: pd.clone(),
        })
    }
}

impl Mapping {
    /// Returns the number of pages that the memory touches.
    pub(crate) fn page_count(&self) -> usize {
        self.memory.page_count()
    }
}

impl MappedMemory for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = self.pd.device().as_raw();
        // SAFETY: By the type invariants `raw` is a mapping for this device. The pages are unpinned
        // later.
        unsafe { bindings::rds_rust_ib_unmap_pages(device, &mut self.raw) };
    }
}

/// A mapping that operations use with the local DMA lkey, until it is released.
#[pin_data]
pub(crate) struct LocalDmaMapping {
    #[pin]
    pub(super) mapping: SpinLockBh<Option<Arc<Mapping>>>,
    pub(super) domain: Arc<Domain>,
}

impl LocalDmaMapping {
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns a reference for a posted work request. The caller drops it before [`Self::release`]
    /// is called, because dropping the last one sleeps.
    pub(super) fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.lock().clone()
    }

    /// Releases the mapping. Operations cannot use it any more.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn release(&self) {
        let mapping = self.mapping.lock().take();
        drop(mapping);
    }
}
