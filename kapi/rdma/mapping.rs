// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that is mapped for a device.

use super::{
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

/// Purpose of an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Peers may read the MR.
    Readable,
    /// Peers may read and write the MR and, if `atomics` is set, use it for atomic operations.
    Writable { atomics: bool },
    /// A local operation reads from the MR.
    Source,
    /// A local operation writes to the MR. On iWARP the peer does that, so it needs permission
    /// (`by_peer`).
    Sink { by_peer: bool },
}

impl Access {
    /// Returns the same access without atomic operations, or `None` if it has none.
    pub(crate) fn without_atomics(self) -> Option<Self> {
        (self == Self::Writable { atomics: true }).then_some(Self::Writable { atomics: false })
    }

    /// Returns `true` if programs of peers access the MR. They may do so at any time.
    pub(crate) fn is_of_peers(self) -> bool {
        matches!(self, Self::Readable | Self::Writable { .. })
    }

    /// Returns the flags of `enum ib_access_flags`.
    pub(crate) fn flags(self) -> c_int {
        const WRITE: c_uint = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
        // Remote write access requires local write access, too.
        const BY_PEER: c_uint = WRITE | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        const READ: c_uint = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
        let flags = match self {
            Self::Readable => READ,
            Self::Writable { atomics: false } => BY_PEER | READ,
            Self::Writable { atomics: true } => {
                BY_PEER | READ | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC
            }
            Self::Source => 0,
            Self::Sink { by_peer: false } => WRITE,
            Self::Sink { by_peer: true } => BY_PEER,
        };
        // CAST: flags are small.
        flags as c_int
    }
}

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
