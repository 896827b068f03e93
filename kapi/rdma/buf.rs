// SPDX-License-Identifier: GPL-2.0

//! Handles of buffers, and how they are taken from an [`Arena`].
//!
//! # Ownership
//!
//! A buffer has handles of one of two types. A [`BufMut`] is the only handle of its buffer. It
//! permits writes, and receives are posted with it. A [`Buf`] is one of several handles, which only
//! permit reads. A posted [`BufMut`] belongs to the queue pair, so nothing reads memory that the
//! device may be writing.

use super::{
    arena::{
        Arena,
        TakeSlot, //
    },
    domain::Domain,
    shard::Slot, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::ordering,
        Arc, //
    }, //
};

/// The only handle of a buffer. Dropping it frees the buffer, in any context except hard interrupt.
///
/// # Invariants
///
/// There is no other handle of the slot.
pub(crate) struct BufMut(Slot);

// SAFETY: The buffer consists of plain bytes, and the shard is `Sync`.
unsafe impl Send for BufMut {}
// SAFETY: Shared references only permit reads.
unsafe impl Sync for BufMut {}

impl BufMut {
    /// Returns the size of the buffer, in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the memory that the buffer takes, in bytes. This includes its share of the unused
    /// end of the shard.
    #[inline]
    pub(crate) fn true_size(&self) -> usize {
        self.0.true_size()
    }

    /// Returns `true` if queue pairs that can use the buffers of `arena` can use this one.
    #[inline]
    pub(crate) fn is_for(&self, arena: &Arena) -> bool {
        ptr::eq(self.0.domain(), arena.domain())
    }

    /// Returns all bytes. Bytes not written since the allocation have the contents of an earlier
    /// use.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: The slot's bytes are initialised (the pages were zeroed). By the type invariants
        // no other handle uses them.
        unsafe { core::slice::from_raw_parts(self.0.ptr(), self.0.capacity()) }
    }

    /// Returns all bytes for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: The slot's bytes are initialised (the pages were zeroed). By the type invariants
        // no other handle uses them.
        unsafe { core::slice::from_raw_parts_mut(self.0.ptr(), self.0.capacity()) }
    }

    /// Ends write access. Afterwards the buffer may have several handles.
    #[inline]
    pub(crate) fn freeze(self) -> Buf {
        let this = ManuallyDrop::new(self);
        if let Some(readers) = this.0.readers() {
            readers.set(1);
        }
        // INVARIANT: The slot had one handle. The count of one represents the result.
        // SAFETY: The result takes the place of `self`, which is not dropped.
        Buf(unsafe { this.0.again() })
    }

    /// Returns the buffer's DMA address, or `None` if it is not mapped in `domain`.
    #[inline]
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        self.0.address(domain)
    }

    /// Returns the DMA address of a buffer that was posted.
    #[inline]
    pub(super) fn posted_address(&self) -> Option<u64> {
        self.address(self.0.domain())
    }
}

impl Drop for BufMut {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants this was the slot's only handle.
        unsafe { Arena::release(&self.0) };
    }
}

/// A read-only handle of a buffer. Cloning increments the count of handles. Dropping the last
/// handle frees the buffer.
///
/// # Context
///
/// Any context except hard interrupt.
///
/// # Invariants
///
/// The count of the slot's readers includes `self`.
pub(crate) struct Buf(Slot);

// SAFETY: The buffer consists of plain bytes that nothing writes, and the shard is `Sync`.
unsafe impl Send for Buf {}
// SAFETY: As above.
unsafe impl Sync for Buf {}

impl Buf {
    /// Returns the size of the buffer, in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns all bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: The slot's bytes are initialised (the pages were zeroed). Nothing writes them
        // while there is a handle of this type.
        unsafe { core::slice::from_raw_parts(self.0.ptr(), self.0.capacity()) }
    }

    /// Returns a handle for writing if `self` is the only handle. Otherwise returns `self`.
    #[inline]
    pub(crate) fn thaw(self) -> Result<BufMut, Self> {
        let readers = self.0.readers();
        let alone = readers.is_some_and(|it| it.as_atomic().load(ordering::Acquire) == 1);
        if !alone {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // INVARIANT: `self` was the only handle, so it was the only one that could be cloned.
        // SAFETY: The result takes the place of `self`, which is not dropped.
        Ok(BufMut(unsafe { this.0.again() }))
    }

    /// Returns the buffer's DMA address, or `None` if it is not mapped in `domain`.
    #[inline]
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        self.0.address(domain)
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Self {
        if let Some(readers) = self.0.readers() {
            readers.inc();
        }
        // INVARIANT: The new handle was counted just now. A saturated count never returns to zero.
        // SAFETY: The slot is not freed before the new handle is dropped.
        Self(unsafe { self.0.again() })
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        let last = match self.0.readers() {
            Some(readers) => readers.dec_and_test(),
            None => false,
        };
        if last {
            // SAFETY: The count reached zero, so this was the last handle.
            unsafe { Arena::release(&self.0) };
        }
    }
}

impl TakeSlot<'_> {
    /// Takes a slot. Returns the handle of its buffer, or `None` if none is free.
    #[inline]
    pub(super) fn take_buf(self) -> Option<BufMut> {
        // INVARIANT: The slot was free, so it has no other handle.
        self.take().map(BufMut)
    }
}

impl Arena {
    /// Takes a free buffer. Returns `None` if there is none.
    #[inline]
    pub(crate) fn take_one(this: &Arc<Self>) -> Option<BufMut> {
        Self::take_one_leaving(this, 0)
    }

    /// Takes a free buffer if more than `spare` are free.
    #[inline]
    pub(crate) fn take_one_leaving(this: &Arc<Self>, spare: usize) -> Option<BufMut> {
        let mut one = None;
        Self::take_with(this, 1, spare, |slot| {
            one = slot.take_buf();
            one.is_some()
        });
        one
    }
}
