// SPDX-License-Identifier: GPL-2.0

//! Memory for what is made and freed with each message.
//!
//! The `kernel` crate's `Kmalloc` goes through `krealloc()` both ways, which takes twice as many
//! instructions as `kmalloc()` and `kfree()` do. What never changes its size does without.

use crate::bindings;
use core::{alloc::Layout, ptr::NonNull};
use kernel::{
    alloc::{allocator::Kmalloc, AllocError, Allocator, Flags, NumaNode},
    prelude::*,
};

/// What `kmalloc()` takes for so many bytes, in bytes: it has pieces of 96, of 192, and of powers of two from 8 on.
/// `kvmalloc()` takes the same, or less if it does not find that much at one place.
///
/// C function: `kmalloc_size_roundup()`, which does not know it before it is called.
#[inline]
pub(crate) const fn kmalloc_size(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        65..=96 => 96,
        129..=192 => 192,
        _ => match bytes.checked_next_power_of_two() {
            Some(size) => size,
            None => usize::MAX,
        },
    }
}

/// The same, as the kernel has it.
#[cfg(rds_kunit)]
pub(crate) fn kmalloc_size_roundup(bytes: usize) -> usize {
    // SAFETY: Any size will do.
    unsafe { bindings::kmalloc_size_roundup(bytes) }
}

/// `kmalloc()` and `kfree()`, as they are. What is made with `GFP_KERNEL` is charged to the memory control
/// group of the program that makes it.
pub(crate) struct Direct;

// SAFETY: Memory of `kmalloc()` is valid until `kfree()`. Its alignment is `MIN_ALIGN`, and `alloc` leaves
// all that needs more to `Kmalloc`, whose memory is `kmalloc()`'s, too, so that each may resize and
// free what the other one gave.
unsafe impl Allocator for Direct {
    const MIN_ALIGN: usize = Kmalloc::MIN_ALIGN;

    #[inline]
    fn alloc(layout: Layout, flags: Flags, nid: NumaNode) -> Result<NonNull<[u8]>, AllocError> {
        // The crate keeps the numbers of flags to itself.
        let atomic = flags == GFP_ATOMIC;
        let usual = (atomic || flags == GFP_KERNEL) && nid == NumaNode::NO_NODE;
        if !usual || layout.size() == 0 || layout.align() > Self::MIN_ALIGN {
            return Kmalloc::alloc(layout, flags, nid);
        }
        // SAFETY: Any size will do; whether it may sleep is as the caller says.
        let memory = unsafe { bindings::rds_kmalloc(layout.size(), atomic) };
        let memory = NonNull::new(memory.cast()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    #[inline]
    unsafe fn realloc(
        ptr: Option<NonNull<u8>>,
        layout: Layout,
        old_layout: Layout,
        flags: Flags,
        nid: NumaNode,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: `ptr` is memory of `kmalloc()`; the rest is as the caller guarantees.
        unsafe { Kmalloc::realloc(ptr, layout, old_layout, flags, nid) }
    }

    #[inline]
    unsafe fn free(ptr: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: It is memory of `kmalloc()`, which the caller gives up.
            unsafe { bindings::kfree(ptr.as_ptr().cast()) };
        }
    }
}
