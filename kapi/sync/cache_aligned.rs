// SPDX-License-Identifier: GPL-2.0

//! Values that begin at a cache line.
//!
//! C header: [`include/linux/cache.h`](srctree/include/linux/cache.h)

use core::ops::Deref;
use kernel::prelude::*;

/// A value at the begin of a cache line, with no other value in its lines: what
/// `____cacheline_aligned_in_smp` is in C.
///
/// It separates values that different CPUs write. The fields of a value that one CPU writes
/// together have to be neighbours, for which it is `repr(C)`. A line has 64 bytes. CPUs with larger
/// ones work as well, but more values share a line there.
#[pin_data]
#[repr(C, align(64))]
pub(crate) struct CacheAligned<T> {
    #[pin]
    value: T,
}

impl<T> CacheAligned<T> {
    pub(crate) fn new(value: impl PinInit<T>) -> impl PinInit<Self> {
        pin_init!(Self { value <- value })
    }
}

impl<T> Deref for CacheAligned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}
