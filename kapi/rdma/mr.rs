// SPDX-License-Identifier: GPL-2.0

//! Memory regions: memory of programs that peers may read, write or change.
//!
//! An [`Mr`] is what a device keeps of a region, made once and used again and again. With memory it is a
//! [`Region`], which has a key that peers need: [`LocalQp::register`](super::LocalQp::register) and
//! [`LocalQp::invalidate`](super::LocalQp::invalidate) go from one to the other.
//!
//! A region never gives its memory back while its key is good: it is invalidated first, or the `Mr` is destroyed. If the
//! device refuses that, too, the memory is kept with the protection domain, until nothing can get at it any more: see
//! [`Pd::release_kept`].

use super::{
    domain::Domain,
    mark::Mark,
    operation::{LocalPiece, PieceOwner},
    pd::Pd,
    wc_status::WcStatus,
};
use crate::{
    bindings,
    kapi::{
        pin::PinnedMemory,
        print::pr_warn_ratelimited,
        sync::{new_spinlock_bh, Item, SpinLockBh},
    },
};
use core::{mem, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// What a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Peers may read it.
    Readable,
    /// Peers may read and write it, and do atomics to it.
    Writable { atomics: bool },
    /// What an operation of this node's takes from.
    Source,
    /// What an operation of this node's brings to: in the peer's name, with iWARP.
    Sink { by_peer: bool },
}

impl Access {
    /// The same without atomic operations.
    pub(crate) fn without_atomics(self) -> Option<Self> {
        (self == Self::Writable { atomics: true }).then_some(Self::Writable { atomics: false })
    }

    /// Whether programs of peers use it, and nobody knows when.
    pub(crate) fn is_of_peers(self) -> bool {
        matches!(self, Self::Readable | Self::Writable { .. })
    }

    /// As C wants it.
    pub(crate) fn flags(self) -> c_int {
        const WRITE: c_uint = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
        // Who lets others write has to be let, too.
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
        // CAST: small.
        flags as c_int
    }
}

/// Local memory of an operation, in the order of its bytes.
pub(crate) type Pieces = KVec<LocalPiece>;

/// Most pieces that are better named one by one: a work request costs less than a region.
const FEW_PIECES: usize = 4;

/// Pages as a device sees them. Dropping it sleeps.
///
/// # Invariants
///
/// `raw` maps the pages of `memory` for the device of `pd`.
pub(crate) struct Mapping {
    raw: bindings::rds_ib_mapping,
    memory: PinnedMemory,
    pd: Arc<Pd>,
}

// SAFETY: Any thread may unmap.
unsafe impl Send for Mapping {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// For `access`. Fails with EIO if peers are to use memory that the device does not get at itself, but by way of a
    /// copy. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, memory: PinnedMemory, access: Access) -> Result<Self> {
        let mut raw = bindings::rds_ib_mapping::default();
        let pages = memory.pages();
        // SAFETY: `pd` keeps the device registered. The pages are pinned, and have so much memory.
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
        // INVARIANT: Just mapped.
        Ok(Self {
            raw,
            memory,
            pd: pd.clone(),
        })
    }
}

impl Mapping {
    /// How many pages the memory has a part of.
    pub(crate) fn page_count(&self) -> usize {
        self.memory.page_count()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = self.pd.device().as_raw();
        // SAFETY: By the type invariants; the pages are given back after this.
        unsafe { bindings::rds_rust_ib_unmap_pages(device, &mut self.raw) };
    }
}

/// A mapping that operations use under the key of all memory, until it is released.
#[pin_data]
pub(crate) struct LocalDmaMapping {
    #[pin]
    mapping: SpinLockBh<Option<Arc<Mapping>>>,
    domain: Arc<Domain>,
}

impl LocalDmaMapping {
    /// Lends it if the device sees it in few pieces, or in such as fit into no region. Fails with ENOMEM. May sleep.
    pub(crate) fn new(mapping: &Arc<Mapping>) -> Result<Option<(Arc<Self>, Pieces)>> {
        let raw = &mapping.raw;
        // SAFETY: By the type invariants the memory is mapped.
        // CAST: small.
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
        // SAFETY: By the type invariants the memory is mapped; there is room for so many.
        unsafe { bindings::rds_rust_ib_mapping_list(raw, sges.as_mut_ptr()) };
        let domain = mapping.pd.domain();
        let lent = Arc::pin_init(
            pin_init!(Self {
                mapping <- new_spinlock_bh!(Some(mapping.clone()), "LentMapping"),
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
                of: PieceOwner::Mapping(lent.clone()),
            };
            pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Some((lent, pieces)))
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// For what is posted: it has to be dropped before [`Self::release`] may be called.
    pub(super) fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.lock().clone()
    }

    /// Lends it no more. Sleeps.
    pub(crate) fn release(&self) {
        let mapping = self.mapping.lock().take();
        drop(mapping);
    }
}

/// A memory region of a protection domain, and what it stands for.
///
/// # Invariants
///
/// It has no region, or one of that domain that this owns.
pub(super) struct RawMr {
    raw: Option<NonNull<bindings::ib_mr>>,
    /// Memory that the device may use by it.
    mapping: Option<Arc<Mapping>>,
}

// SAFETY: Any thread may destroy a memory region.
unsafe impl Send for RawMr {}

impl RawMr {
    const NONE: Self = Self {
        raw: None,
        mapping: None,
    };

    /// Ends all use of it, if there is one, or fails as the device does. Sleeps.
    pub(super) fn end(&mut self) -> Result {
        let Some(raw) = self.raw else {
            return Ok(());
        };
        // SAFETY: By the type invariants it is ours.
        to_result(unsafe { bindings::rds_rust_ib_dereg_mr(raw.as_ptr()) })?;
        // INVARIANT: It is gone.
        self.raw = None;
        Ok(())
    }
}

/// What a device keeps of a region. Dropping it ends all use of it, and sleeps.
///
/// # Invariants
///
/// `raw` is the region of `own`, which is one of `pd`.
pub(crate) struct Mr {
    raw: NonNull<bindings::ib_mr>,
    own: RawMr,
    mark: Pin<KBox<Mark>>,
    pd: Arc<Pd>,
    /// How many keys it has had.
    keys: u8,
    /// Where it goes if the device refuses to end it: there may be no memory then.
    place: Option<Item<RawMr>>,
}

// SAFETY: Any thread may use a memory region.
unsafe impl Send for Mr {}
// SAFETY: What changes it needs `&mut`.
unsafe impl Sync for Mr {}

impl Mr {
    /// Room for `pages` pages. Fails as the device does. Sleeps.
    pub(crate) fn new(pd: &Arc<Pd>, pages: u32) -> Result<Self> {
        let mark = KBox::pin_init(Mark::new(), GFP_KERNEL)?;
        let place = Item::new(RawMr::NONE, GFP_KERNEL)?;
        // SAFETY: The protection domain is alive.
        let raw = from_err_ptr(unsafe { bindings::rds_rust_ib_alloc_mr(pd.as_raw(), pages) })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: New, and nobody else's.
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

    /// Has it stand for other pages when it is registered, with another key. Fails with EINVAL if they are too
    /// many.
    pub(super) fn set_pages(&mut self, mapping: &Arc<Mapping>) -> Result {
        self.keys = self.keys.saturating_add(1);
        self.own.mapping = Some(mapping.clone());
        let raw = core::ptr::from_ref(&mapping.raw).cast_mut();
        // SAFETY: Both are alive; the mapping is only read.
        to_result(unsafe { bindings::rds_rust_ib_mr_map(self.as_raw(), raw) })
    }

    /// Whether the next key would be one that it has had: a key differs from the one before in a byte.
    fn rkeys_exhausted(&self) -> bool {
        self.keys == u8::MAX
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
        let (Err(error), Some(mut place)) = (self.own.end(), self.place.take()) else {
            return;
        };
        *place = mem::replace(&mut self.own, RawMr::NONE);
        self.pd.keep(place);
        self.pd.device().with_name(|name| {
            pr_warn_ratelimited!(
                "{}: the device does not end a memory region (error {}): its pages stay pinned until the device is \
                removed, or this module\n",
                name,
                error.to_errno()
            )
        });
    }
}

/// Memory that peers may use who know its key. Dropping it ends that, and sleeps.
pub(crate) struct Region {
    /// Goes first, as memory must not go before it.
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

    /// The key. It changes with each registration.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: The region is alive.
        unsafe { bindings::rds_rust_ib_mr_rkey(self.mr.as_raw()) }
    }

    /// For operations of this node's.
    pub(crate) fn pieces(&self) -> Result<Pieces> {
        let mut pieces = Pieces::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
        let piece = LocalPiece {
            // SAFETY: The region is alive.
            lkey: unsafe { bindings::rds_rust_ib_mr_lkey(self.mr.as_raw()) },
            address: self.offset().into(),
            len: self.mapping.memory.len(),
            of: PieceOwner::Region(self.mr.pd.domain().clone()),
        };
        pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        Ok(pieces)
    }

    /// Where the memory begins, as peers have to name it, in bytes: where in a page the device sees it, which is somewhere
    /// else if that is a bounce buffer.
    pub(crate) fn offset(&self) -> u32 {
        // SAFETY: The region is alive.
        unsafe { bindings::rds_rust_ib_mr_start(self.mr.as_raw()) }
    }

    /// How many pages the memory has a part of.
    pub(crate) fn pages(&self) -> usize {
        self.mapping.memory.page_count()
    }

    /// Whether peers can begin nothing with it any more.
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid.load(ordering::Acquire)
    }

    /// Ends it for good. Its memory stays as it is as long as what this returns. Sleeps.
    pub(crate) fn end(self) -> Arc<Mapping> {
        let Self { mr, mapping, .. } = self;
        drop(mr);
        mapping
    }

    pub(super) fn set_invalid(&self) {
        self.invalid.store(true, ordering::Release);
    }

    /// Gives the memory back to its program, and what can be used again if the region was invalidated and has keys left.
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
        // What was not invalidated has to go before its memory.
        let mr = again.then_some(mr);
        drop(mapping);
        mr
    }
}
