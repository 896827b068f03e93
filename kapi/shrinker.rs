// SPDX-License-Identifier: GPL-2.0

//! Giving memory back when the kernel needs it.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

/// What the callbacks return if nothing can be freed, and if nothing could be freed.
///
/// Source: `SHRINK_EMPTY` and `SHRINK_STOP` in the C header.
const EMPTY: c_ulong = c_ulong::MAX - 1;
const STOP: c_ulong = c_ulong::MAX;

/// Memory of the machine that the kernel manages, in bytes. Any context.
pub(crate) fn total_memory() -> usize {
    // SAFETY: The function has no preconditions.
    let pages = unsafe { bindings::rds_totalram_pages() };
    // CAST: `long` has as many bits as `usize`.
    (pages as usize).saturating_mul(PAGE_SIZE)
}

/// A cache that can give memory back.
///
/// Both methods are called by whoever looks for memory: in process context, with any locks held
/// under which memory may be allocated with `GFP_NOIO`. They take no lock under which someone
/// allocates memory and waits for it.
pub(crate) trait Cache: Send + Sync + 'static {
    /// Name in the kernel's list of shrinkers.
    const NAME: &'static CStr;

    /// How many pages it makes sense to free at a time.
    const BATCH: usize;

    /// Pages that could be freed now.
    fn count(&self) -> usize;

    /// Frees `pages` pages or a few more, if there are so many, and returns how many it freed.
    fn shrink(&self, pages: usize) -> usize;
}

/// A registered [`Cache`]. Dropping it sleeps; then its methods are not called any more.
///
/// # Invariants
///
/// `raw` is a registered shrinker that `self` owns. Its data is the pointer of `_cache`.
pub(crate) struct Shrinker<C: Cache> {
    raw: NonNull<bindings::shrinker>,
    _cache: Arc<C>,
}

// SAFETY: A shrinker may be freed from any thread.
unsafe impl<C: Cache> Send for Shrinker<C> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<C: Cache> Sync for Shrinker<C> {}

impl<C: Cache> Shrinker<C> {
    /// May sleep.
    pub(crate) fn new(cache: Arc<C>) -> Result<Self> {
        let data = Arc::as_ptr(&cache).cast_mut().cast();
        // SAFETY: The name lives for ever. The data lives until after the shrinker is freed, and is
        // what both callbacks expect.
        let raw = unsafe {
            bindings::rds_shrinker_register(
                C::NAME.as_char_ptr(),
                // CAST: a number of pages; `long` has as many bits as `usize`.
                C::BATCH as c_long,
                Some(Self::count),
                Some(Self::scan),
                data,
            )
        };
        // INVARIANT: New, with this data.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _cache: cache,
        })
    }

    /// # Safety
    ///
    /// Only for the kernel, as a callback of the shrinker of a `Self`.
    unsafe fn cache<'a>(shrinker: *mut bindings::shrinker) -> &'a C {
        // SAFETY: The kernel gives the shrinker that it calls.
        let data = unsafe { bindings::rds_shrinker_data(shrinker) };
        // SAFETY: By the type invariants; freeing the shrinker waits for its callbacks.
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
        // SAFETY: The kernel gives a valid structure.
        let want = unsafe { bindings::rds_shrink_want(control) };
        // CAST: `long` has as many bits as `usize`, here and below.
        match cache.shrink(want as usize) {
            0 => STOP,
            freed => freed as c_ulong,
        }
    }
}

impl<C: Cache> Drop for Shrinker<C> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is ours; this waits for its callbacks.
        unsafe { bindings::shrinker_free(self.raw.as_ptr()) };
    }
}
