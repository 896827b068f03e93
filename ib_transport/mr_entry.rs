// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that is kept for a device until that is done with it.

use crate::conn::OnRelease;
use crate::kapi::rdma::{LocalDmaMapping, Mapping, Region};
use kernel::sync::Arc;

/// Memory of a program.
pub(super) enum MrMemory {
    Region(Region),
    /// It has no key of its own.
    Lent(Arc<LocalDmaMapping>),
    /// Its region has gone.
    Mapped {
        _mapping: Arc<Mapping>,
    },
    Released,
}

/// Memory, and who waits for its release. Dropping it releases it, and sleeps.
pub(super) struct MrEntry {
    /// Goes first.
    pub(super) memory: MrMemory,
    /// The device may still write by what it has of the region: that is not to be used again.
    pub(super) poisoned: bool,
    /// A peer may read from it, and goes on when it is invalid.
    pub(super) read_from: bool,
    pub(super) then: Option<Arc<dyn OnRelease>>,
}

impl MrEntry {
    /// Whether peers use it: for an operation of this node's somebody waits.
    pub(super) fn is_offered(&self) -> bool {
        self.then.is_none()
    }

    /// Releases the memory, or gives the region that is to be invalidated for it. Sleeps.
    pub(super) fn release(&mut self) -> Option<Region> {
        match core::mem::replace(&mut self.memory, MrMemory::Released) {
            MrMemory::Region(region) => Some(region),
            MrMemory::Lent(lent) => {
                lent.release();
                None
            }
            MrMemory::Mapped { .. } | MrMemory::Released => None,
        }
    }
}
