// SPDX-License-Identifier: GPL-2.0

//! Memory of a program that is in use by a device or waits for its release.

use crate::{
    kapi::rdma::{
        LocalDmaMapping,
        Mapping,
        Region, //
    },
    rdma_mem::OnRelease,
    trace::{
        self,
        TracedMr, //
    }, //
};
use kernel::sync::Arc;

/// The state of the memory.
pub(crate) enum MrMemory {
    Region(Region),
    /// Mapped for local operations, without a key of its own.
    LocalMapping(Arc<LocalDmaMapping>),
    /// The region is destroyed, and the memory is still mapped.
    Mapped {
        _mapping: Arc<Mapping>,
    },
    Released,
}

/// Memory in use by a device, and the observer of its release. Dropping it releases the memory, and
/// sleeps.
pub(crate) struct MrEntry {
    /// Dropped before `then`.
    pub(crate) memory: MrMemory,
    /// The device may still write through the MR, so the MR must not be reused.
    pub(crate) poisoned: bool,
    /// READ responses to peers may still use the memory after its key is invalidated.
    pub(crate) read_from: bool,
    pub(crate) then: Option<Arc<dyn OnRelease>>,
    /// Name in trace events, once the memory is held.
    pub(crate) traced: Option<TracedMr>,
}

impl Drop for MrEntry {
    fn drop(&mut self) {
        if let Some(traced) = &self.traced {
            trace::mr_released(traced);
        }
    }
}

impl MrEntry {
    /// Returns `true` if the memory is offered to peers. Memory of local operations has an
    /// observer.
    pub(crate) fn is_offered(&self) -> bool {
        self.then.is_none()
    }

    /// Releases the memory, unless it has a region: that is returned, and has to be invalidated
    /// first.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn release(&mut self) -> Option<Region> {
        match core::mem::replace(&mut self.memory, MrMemory::Released) {
            MrMemory::Region(region) => Some(region),
            MrMemory::LocalMapping(mapping) => {
                mapping.release();
                None
            }
            MrMemory::Mapped { .. } | MrMemory::Released => None,
        }
    }
}
