// SPDX-License-Identifier: GPL-2.0

//! Memory regions: memory of programs that peers may read, write or change.
//!
//! An [`Mr`] is what a device keeps of a region, made once and used again and again. With memory it is a
//! [`Region`], which has a key that peers need: [`LocalQp::register`](super::LocalQp::register) and
//! [`LocalQp::invalidate`](super::LocalQp::invalidate) go from one to the other.
//!
//! A region never gives its memory back while its key is good: it is invalidated first, or the `Mr` is destroyed.

use super::{mark::Mark, pd::Pd, qp::WcStatus};
use crate::{bindings, kapi::pin::PinnedMemory};
use core::ptr::NonNull;
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// What peers may do with a region. They may always read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

impl Access {
    /// As C wants it.
    pub(super) fn flags(self) -> c_int {
        let mut flags = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
        if self.write {
            // Who lets others write has to be let, too.
            flags |= bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        }
        if self.write && self.atomic {
            flags |= bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
        }
        // CAST: small.
        flags as c_int
    }
}

/// Pages as a device sees them. Dropping it sleeps.
///
/// # Invariants
///
/// `raw` maps the pages of `memory` for the device of `pd`.
pub(super) struct Mapping {
    raw: bindings::rds_ib_mapping,
    memory: PinnedMemory,
    pd: Arc<Pd>,
}

// SAFETY: Any thread may unmap.
unsafe impl Send for Mapping {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Sleeps.
    pub(super) fn new(pd: &Arc<Pd>, memory: PinnedMemory) -> Result<Self> {
        let mut raw = bindings::rds_ib_mapping::default();
        let pages = memory.pages();
        // SAFETY: `pd` keeps the device registered. The pages are pinned, and have so much memory.
        to_result(unsafe {
            bindings::rds_ib_map_pages(
                pd.device().as_raw(),
                pages.as_ptr().cast_mut(),
                pages.len().try_into()?,
                memory.offset(),
                memory.len() as c_ulong,
                memory.is_writable(),
                &mut raw,
            )
        })?;
        // INVARIANT: Just mapped.
        Ok(Self {
            raw,
            memory,
            pd: pd.clone(),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = self.pd.device().as_raw();
        // SAFETY: By the type invariants; the pages are given back after this.
        unsafe { bindings::rds_ib_unmap_pages(device, &mut self.raw) };
    }
}

/// What a device keeps of a region. Dropping it ends all use of it, and sleeps.
///
/// # Invariants
///
/// `raw` is a memory region of `pd` that this owns.
pub(crate) struct Mr {
    raw: NonNull<bindings::ib_mr>,
    mark: Pin<KBox<Mark>>,
    pd: Arc<Pd>,
}

// SAFETY: Any thread may use a memory region.
unsafe impl Send for Mr {}
// SAFETY: What changes it needs `&mut`.
unsafe impl Sync for Mr {}

impl Mr {
    /// Room for `pages` pages. Fails as the device does. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, pages: u32) -> Result<Self> {
        let mark = KBox::pin_init(Mark::new(), GFP_KERNEL)?;
        // SAFETY: The protection domain is alive.
        let raw = from_err_ptr(unsafe { bindings::rds_ib_alloc_mr(pd.as_raw(), pages) })?;
        // INVARIANT: New, and nobody else's.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            mark,
            pd: pd.clone(),
        })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.raw.as_ptr()
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Has it stand for other pages when it is registered, with another key. Fails with EMSGSIZE if they are too
    /// many.
    pub(super) fn set_pages(&mut self, mapping: &Mapping) -> Result {
        let raw = core::ptr::from_ref(&mapping.raw).cast_mut();
        // SAFETY: Both are alive; the mapping is only read.
        to_result(unsafe { bindings::rds_ib_mr_map(self.as_raw(), raw) })
    }

    /// Waits for the work request that has its mark. Fails with EIO or ETIMEDOUT. Sleeps.
    pub(super) fn finish(&self, timeout_ms: u32) -> Result {
        match self.mark.wait(timeout_ms)? {
            WcStatus(bindings::ib_wc_status_IB_WC_SUCCESS) => Ok(()),
            _ => Err(EIO),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is ours.
        let result = unsafe { bindings::rds_ib_dereg_mr(self.as_raw()) };
        // Memory windows would be in the way, and nobody makes any.
        if result != 0 {
            pr_err!("a device keeps a memory region (error {})\n", result);
        }
    }
}

/// Memory that peers may use who know its key. Dropping it ends that, and sleeps.
pub(crate) struct Region {
    /// Goes first, as memory must not go before it.
    mr: Mr,
    mapping: Mapping,
    invalid: Atomic<bool>,
}

impl Region {
    pub(super) fn new(mr: Mr, mapping: Mapping) -> Self {
        Self {
            mr,
            mapping,
            invalid: Atomic::new(false),
        }
    }

    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// The key. It changes with each registration.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: The region is alive.
        unsafe { bindings::rds_ib_mr_rkey(self.mr.as_raw()) }
    }

    /// Where the memory begins, as peers have to name it, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.mapping.memory.offset()
    }

    /// How many pages the memory has a part of.
    pub(crate) fn pages(&self) -> usize {
        self.mapping.memory.page_count()
    }

    pub(super) fn set_invalid(&self) {
        self.invalid.store(true, ordering::Release);
    }

    /// Gives the memory back to its program, and what can be used again if the region was invalidated. Sleeps.
    pub(crate) fn release(self) -> Option<Mr> {
        let Self {
            mr,
            mapping,
            invalid,
        } = self;
        let again = invalid.load(ordering::Acquire);
        // What was not invalidated has to go before its memory.
        let mr = again.then_some(mr);
        drop(mapping);
        mr
    }
}
