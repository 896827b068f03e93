// SPDX-License-Identifier: GPL-2.0

//! Allocator for objects that are allocated and freed with each message.
//!
//! The `kernel` crate's `Kmalloc` calls `krealloc()` to allocate and to free. That takes twice as
//! many instructions as `kmalloc()` and `kfree()`, 3 % of a short message on this node
//! (Documentation/performance.md). Objects of fixed size do not need it.

use crate::bindings;
use core::{
    alloc::Layout,
    ptr::NonNull, //
};
use kernel::{
    alloc::{
        allocator::Kmalloc,
        AllocError,
        Allocator,
        Flags,
        NumaNode, //
    },
    prelude::*, //
};

/// Returns the number of bytes that `kmalloc()` takes for a request of `bytes`.
///
/// It allocates from slabs of 96 and 192 bytes and of powers of two from 8 on. `kvmalloc()` takes
/// the same, or less if it has to fall back to `vmalloc()`.
///
/// C function: `kmalloc_size_roundup()`, which cannot be evaluated at compile time.
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

/// Returns the same number, from the kernel.
#[cfg(rds_kunit)]
pub(crate) fn kmalloc_size_roundup(bytes: usize) -> usize {
    // SAFETY: The function accepts any size.
    unsafe { bindings::kmalloc_size_roundup(bytes) }
}

/// Allocator that calls `kmalloc()` and `kfree()` directly.
///
/// Allocations with `GFP_KERNEL` are charged to the memory control group of the calling program.
pub(crate) struct Direct;

// SAFETY: Memory of `kmalloc()` is valid until `kfree()`, and has an alignment of `MIN_ALIGN`.
// `alloc` passes requests with larger alignment to `Kmalloc`. That also uses `kmalloc()`, so either
// allocator may resize and free the memory of the other.
unsafe impl Allocator for Direct {
    const MIN_ALIGN: usize = Kmalloc::MIN_ALIGN;

    #[inline]
    fn alloc(layout: Layout, flags: Flags, nid: NumaNode) -> Result<NonNull<[u8]>, AllocError> {
        // `Flags` does not expose its value, so only known flags are compared.
        let atomic = flags == GFP_ATOMIC;
        let usual = (atomic || flags == GFP_KERNEL) && nid == NumaNode::NO_NODE;
        if !usual || layout.size() == 0 || layout.align() > Self::MIN_ALIGN {
            return Kmalloc::alloc(layout, flags, nid);
        }
        // SAFETY: The function accepts any size. The caller's flags say whether it may sleep.
        let memory = unsafe { bindings::rds_rust_kmalloc(layout.size(), atomic) };
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
        // SAFETY: `ptr` comes from `kmalloc()`; the caller guarantees the rest.
        unsafe { Kmalloc::realloc(ptr, layout, old_layout, flags, nid) }
    }

    #[inline]
    unsafe fn free(ptr: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: The memory comes from `kmalloc()`, and the caller does not use it any more.
            unsafe { bindings::kfree(ptr.as_ptr().cast()) };
        }
    }
}
