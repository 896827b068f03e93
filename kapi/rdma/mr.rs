// SPDX-License-Identifier: GPL-2.0

//! Memory regions (MRs): program memory that is registered for access by peers.
//!
//! # Operation
//!
//! An [`Mr`] is the MR object of a device. It is allocated once and reused. An `Mr` with memory is
//! a [`Region`], which has the key that peers need. [`LocalQp::register`](super::LocalQp::register)
//! makes an `Mr` a region; [`LocalQp::invalidate`](super::LocalQp::invalidate) is the way back.
//!
//! # Ownership
//!
//! A region never releases its memory while its key is valid: either the key is invalidated first,
//! or the `Mr` is deregistered.
//!
//! # Errors
//!
//! If the device also refuses to deregister the `Mr`, the protection domain keeps the memory until
//! nothing can access it: see [`Pd::release_kept`].

use super::{
    mapping::{
        LocalDmaMapping,
        Mapping, //
    },
    mark::Mark,
    operation::{
        LocalPiece,
        PieceOwner,
        Pieces, //
    },
    pd::Pd,
    raw_mr::RawMr,
    wc_status::WcStatus, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        print::pr_warn_ratelimited,
        sync::{
            new_spinlock_bh,
            Item, //
        }, //
    }, //
};
use core::{
    mem,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// Maximum number of pieces that are posted without an MR. One work request for each piece costs
/// less than registering an MR.
const FEW_PIECES: usize = 4;

impl LocalDmaMapping {
    /// Creates the pieces of a mapping that need no MR.
    ///
    /// Returns `None` if the memory should be registered as an MR instead. That is so if the device
    /// sees more than [`FEW_PIECES`] pieces, and an MR can contain them all.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(mapping: &Arc<Mapping>) -> Result<Option<(Arc<Self>, Pieces)>> {
        let raw = &mapping.raw;
        // SAFETY: By the type invariants the memory is mapped.
        // CAST: a count of pieces is small.
        let count =
            unsafe { bindings::rds_rust_ib_mapping_pieces(raw, FEW_PIECES as c_uint) } as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut few = [bindings::ib_sge::default(); FEW_PIECES];
        let mut many;
        let sges = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                let none = bindings::ib_sge::default();
                many = KVec::from_elem(none, count, GFP_KERNEL_ACCOUNT)?;
                many.as_mut_slice()
            }
        };
        // SAFETY: By the type invariants the memory is mapped. `sges` has room for `count` entries.
        unsafe { bindings::rds_rust_ib_mapping_list(raw, sges.as_mut_ptr()) };
        let domain = mapping.pd.domain();
        let local_mapping = Arc::pin_init(
            pin_init!(Self {
                mapping <- new_spinlock_bh!(Some(mapping.clone()), "LocalDmaMapping"),
                domain: domain.clone(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let mut pieces = Pieces::with_capacity(sges.len(), GFP_KERNEL_ACCOUNT)?;
        for sge in sges {
            let piece = LocalPiece {
                lkey: mapping.pd.local_dma_lkey(),
                address: sge.addr,
                len: sge.length,
                of: PieceOwner::Mapping(local_mapping.clone()),
            };
            pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Some((local_mapping, pieces)))
    }
}

/// An MR object of a device. Dropping it deregisters it, and sleeps.
///
/// # Invariants
///
/// `raw` is the MR of `own`, which belongs to `pd`.
pub(crate) struct Mr {
    raw: NonNull<bindings::ib_mr>,
    own: RawMr,
    mark: Pin<KBox<Mark>>,
    pd: Arc<Pd>,
    /// Number of keys that the MR has had.
    keys: u8,
    /// Memory to hand the MR to [`Pd::keep`] if the device refuses to deregister it. An allocation
    /// might fail then.
    place: Option<Item<RawMr>>,
}

// SAFETY: An MR may be used from any thread.
unsafe impl Send for Mr {}
// SAFETY: Changes require `&mut`.
unsafe impl Sync for Mr {}

impl Mr {
    /// Allocates an MR for up to `pages` pages.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`, or errors of the device.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, pages: u32) -> Result<Self> {
        let mark = KBox::pin_init(Mark::new(), GFP_KERNEL)?;
        let place = Item::new(RawMr::NONE, GFP_KERNEL)?;
        // SAFETY: The protection domain is alive.
        let raw = from_err_ptr(unsafe { bindings::rds_rust_ib_alloc_mr(pd.as_raw(), pages) })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: The MR is new and has no other owner.
        let own = RawMr {
            raw: Some(raw),
            mapping: None,
        };
        Ok(Self {
            raw,
            own,
            mark,
            pd: pd.clone(),
            keys: 0,
            place: Some(place),
        })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.raw.as_ptr()
    }

    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Sets the memory that the next registration makes accessible, and changes the key.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if there are too many pages.
    /// - Errors of the device.
    pub(super) fn set_pages(&mut self, mapping: &Arc<Mapping>) -> Result {
        self.keys = self.keys.saturating_add(1);
        self.own.mapping = Some(mapping.clone());
        let raw = core::ptr::from_ref(&mapping.raw).cast_mut();
        // SAFETY: MR and mapping are alive; the mapping is only read.
        to_result(unsafe { bindings::rds_rust_ib_mr_map(self.as_raw(), raw) })
    }

    /// Returns `true` if the next key would be an earlier one. Consecutive keys differ in one byte
    /// only.
    fn rkeys_exhausted(&self) -> bool {
        self.keys == u8::MAX
    }

    /// Waits for the completion of the work request that has the mark of `self`.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the work request was flushed, because its queue pair had failed.
    /// - `EIO` if the work request failed itself.
    /// - `ETIMEDOUT` if there is no completion within `timeout_ms`.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn finish(&self, timeout_ms: u32) -> Result {
        match self.mark.wait(timeout_ms)? {
            WcStatus::SUCCESS => Ok(()),
            status if status.is_flush() => Err(Errno::NotConnected.into()),
            _ => Err(EIO),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let (Err(error), Some(mut place)) = (self.own.end(), self.place.take()) else {
            return;
        };
        *place = mem::replace(&mut self.own, RawMr::NONE);
        self.pd.keep(place);
        self.pd.device().with_name(|name| {
            pr_warn_ratelimited!(
                "{}: cannot deregister memory (error {}): its pages stay pinned until the device or this \
                module is removed\n",
                name,
                error.to_errno()
            )
        });
    }
}

/// Memory that peers with the key may access. Dropping it ends the access, and sleeps.
pub(crate) struct Region {
    /// Dropped first: the memory must not be released while the key is valid.
    mr: Mr,
    mapping: Arc<Mapping>,
    invalid: Atomic<bool>,
}

impl Region {
    pub(super) fn new(mr: Mr, mapping: Arc<Mapping>) -> Self {
        Self {
            mr,
            mapping,
            invalid: Atomic::new(false),
        }
    }

    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Returns the rkey. It changes with each registration.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: The MR is alive.
        unsafe { bindings::rds_rust_ib_mr_rkey(self.mr.as_raw()) }
    }

    /// Returns the memory as local memory for operations.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    pub(crate) fn pieces(&self) -> Result<Pieces> {
        let mut pieces = Pieces::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
        let piece = LocalPiece {
            // SAFETY: The MR is alive.
            lkey: unsafe { bindings::rds_rust_ib_mr_lkey(self.mr.as_raw()) },
            address: self.offset().into(),
            len: self.mapping.memory.len(),
            of: PieceOwner::Region(self.mr.pd.domain().clone()),
        };
        pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        Ok(pieces)
    }

    /// Returns the address of the memory's first byte for peers: its offset in the first page that
    /// the device sees.
    ///
    /// It differs from the offset in the program's page if the device uses a bounce buffer.
    pub(crate) fn offset(&self) -> u32 {
        // SAFETY: The MR is alive.
        unsafe { bindings::rds_rust_ib_mr_start(self.mr.as_raw()) }
    }

    /// Returns the number of pages that the memory touches.
    pub(crate) fn pages(&self) -> usize {
        self.mapping.memory.page_count()
    }

    /// Returns `true` if the key was invalidated, so that peers cannot start operations on the
    /// memory any more.
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid.load(ordering::Acquire)
    }

    /// Deregisters the MR and returns the memory, which stays mapped as long as the result exists.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn end(self) -> Arc<Mapping> {
        let Self { mr, mapping, .. } = self;
        drop(mr);
        mapping
    }

    pub(super) fn set_invalid(&self) {
        self.invalid.store(true, ordering::Release);
    }

    /// Releases the memory. Returns the MR if it can be reused: it was invalidated and has unused
    /// keys left.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn release(self) -> Option<Mr> {
        let Self {
            mut mr,
            mapping,
            invalid,
        } = self;
        let again = invalid.load(ordering::Acquire) && !mr.rkeys_exhausted();
        if again {
            mr.own.mapping = None;
        }
        // An MR that was not invalidated is deregistered before its memory is released.
        let mr = again.then_some(mr);
        drop(mapping);
        mr
    }
}
