// SPDX-License-Identifier: GPL-2.0

//! Shrinkers: release of cached memory when the kernel needs it.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Return values of the callbacks: nothing can be freed (`count`), and nothing was freed (`scan`).
///
/// Source: `SHRINK_EMPTY` and `SHRINK_STOP` in the C header.
const EMPTY: c_ulong = c_ulong::MAX - 1;
const STOP: c_ulong = c_ulong::MAX;

/// Returns the size in bytes of the memory that the kernel manages.
///
/// # Context
///
/// Any context.
pub(crate) fn total_memory() -> usize {
    // SAFETY: The function has no preconditions.
    let pages = unsafe { bindings::rds_rust_totalram_pages() };
    // CAST: `long` has as many bits as `usize`.
    (pages as usize).saturating_mul(PAGE_SIZE)
}

/// A cache that can release memory.
///
/// # Context
///
/// Both methods run in process context, called by a thread that allocates memory. That thread may
/// hold any lock under which `GFP_NOIO` allocations are allowed. So the methods must not take a
/// lock under which another thread allocates memory that it waits for.
pub(crate) trait Cache: Send + Sync + 'static {
    /// Name in the kernel's list of shrinkers.
    const NAME: &'static CStr;

    /// Preferred number of pages to free at a time.
    const BATCH: usize;

    /// Returns the number of pages that could be freed now.
    fn count(&self) -> usize;

    /// Frees `pages` pages or slightly more, or all if there are fewer. Returns the number of freed
    /// pages.
    fn shrink(&self, pages: usize) -> usize;
}

/// A registered [`Cache`]. Dropping it sleeps; its methods are not called after that.
///
/// # Invariants
///
/// `raw` is a registered shrinker that `self` owns. Its private data is the pointer of `_cache`.
pub(crate) struct Shrinker<C: Cache> {
    raw: NonNull<bindings::shrinker>,
    _cache: Arc<C>,
}

// SAFETY: A shrinker may be freed from any thread.
unsafe impl<C: Cache> Send for Shrinker<C> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<C: Cache> Sync for Shrinker<C> {}

impl<C: Cache> Shrinker<C> {
    /// Registers a cache.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(cache: Arc<C>) -> Result<Self> {
        let data = Arc::as_ptr(&cache).cast_mut().cast();
        // SAFETY: The name is static. The data outlives the shrinker, and has the type that both
        // callbacks expect.
        let raw = unsafe {
            bindings::rds_rust_shrinker_register(
                C::NAME.as_char_ptr(),
                // CAST: a number of pages; `long` has as many bits as `usize`.
                C::BATCH as c_long,
                Some(Self::count),
                Some(Self::scan),
                data,
            )
        };
        // INVARIANT: The shrinker is new and has this data.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _cache: cache,
        })
    }

    /// Returns the cache of a callback.
    ///
    /// # Safety
    ///
    /// Only for the kernel, as a callback of the shrinker of a `Self`.
    unsafe fn cache<'a>(shrinker: *mut bindings::shrinker) -> &'a C {
        // SAFETY: The kernel passes the shrinker that it calls.
        let data = unsafe { bindings::rds_rust_shrinker_data(shrinker) };
        // SAFETY: By the type invariants the data is a `C`. It outlives the callback, because
        // freeing the shrinker waits for callbacks.
        unsafe { &*data.cast::<C>() }
    }

    /// # Safety
    ///
    /// As for [`Self::cache`].
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: This is a callback of the shrinker of a `Self`.
        let cache = unsafe { Self::cache(shrinker) };
        // CAST: `long` has as many bits as `usize`.
        match cache.count() {
            0 => EMPTY,
            pages => pages as c_ulong,
        }
    }

    /// # Safety
    ///
    /// As for [`Self::cache`].
    unsafe extern "C" fn scan(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: This is a callback of the shrinker of a `Self`.
        let cache = unsafe { Self::cache(shrinker) };
        // SAFETY: The kernel passes a valid structure.
        let want = unsafe { bindings::rds_rust_shrink_want(control) };
        // CAST: `long` has as many bits as `usize`, here and below.
        match cache.shrink(want as usize) {
            0 => STOP,
            freed => freed as c_ulong,
        }
    }
}

impl<C: Cache> Drop for Shrinker<C> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the shrinker; the call waits for its
        // callbacks.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) };
    }
}
