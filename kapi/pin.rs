// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that devices use for long.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h); see
//! `Documentation/core-api/pin_user_pages.rst`.

use crate::bindings;
use kernel::{page::PAGE_SIZE, prelude::*};

/// What pinned pages are charged to: the process, which RLIMIT_MEMLOCK binds unless it has CAP_IPC_LOCK.
///
/// # Invariants
///
/// `0` was filled by `rds_pin_charge()`.
struct Charge(bindings::rds_pin_charge);

// SAFETY: It has counted references, which any thread may give back.
unsafe impl Send for Charge {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl Sync for Charge {}

impl Charge {
    fn take(pages: usize) -> Result<Self> {
        let mut charge = bindings::rds_pin_charge::default();
        // CAST: a `long` has as many bits as a `usize`.
        let pages = pages as c_ulong;
        // SAFETY: There is room for what it fills in.
        kernel::error::to_result(unsafe { bindings::rds_pin_charge(&mut charge, pages) })?;
        // INVARIANT: Just filled.
        Ok(Self(charge))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, and once.
        unsafe { bindings::rds_pin_uncharge(&mut self.0) };
    }
}

/// Memory of a program that stays where it is, whatever becomes of the program. Dropping it sleeps.
///
/// # Invariants
///
/// `pages` were pinned by `rds_pin_pages()`; the memory begins `offset` bytes, less than a page, within the first
/// of them, and ends in the last one.
pub(crate) struct PinnedMemory {
    pages: KVVec<*mut bindings::page>,
    offset: u32,
    /// In bytes.
    len: u32,
    writable: bool,
    _charge: Charge,
}

// SAFETY: A pin may be given back by any thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: Nothing here changes it.
unsafe impl Sync for PinnedMemory {}

/// How many pages so much memory has a part of. `None` if there is no such memory.
fn pages_of(address: u64, len: u64) -> Option<u64> {
    let page = PAGE_SIZE as u64;
    let last = address.checked_add(len.checked_sub(1)?)?;
    (last / page).checked_sub(address / page)?.checked_add(1)
}

impl PinnedMemory {
    /// Pins memory of the calling process. `writable`: a device will write it.
    ///
    /// Fails with EINVAL if it has no bytes or wraps around, EFAULT if it is not there, or not to be written,
    /// EPERM if the process may lock nothing, ENOMEM if that would be more than RLIMIT_MEMLOCK, EOPNOTSUPP
    /// if it cannot stay where it is. Process context of a program; sleeps.
    pub(crate) fn pin(address: u64, len: u32, writable: bool) -> Result<Self> {
        let count = pages_of(address, len.into()).ok_or(EINVAL)?;
        let count = usize::try_from(count)?;
        let charge = Charge::take(count)?;
        let mut pages = KVVec::from_elem(core::ptr::null_mut(), count, GFP_KERNEL_ACCOUNT)?;
        let mut done = 0usize;
        let mut at = usize::try_from(address)? & !(PAGE_SIZE - 1);
        let mut result = Ok(());
        while let Some(rest) = pages.get_mut(done..).filter(|rest| !rest.is_empty()) {
            // CAST: less than 2^32 bytes have less than 2^21 pages.
            let want = rest.len() as c_uint;
            // SAFETY: There is room for so many.
            let got = unsafe { bindings::rds_pin_pages(at, want, writable, rest.as_mut_ptr()) };
            match usize::try_from(got) {
                Ok(got) if got > 0 => {
                    done = done.saturating_add(got);
                    at = at.saturating_add(got.saturating_mul(PAGE_SIZE));
                }
                Ok(_) => result = Err(EFAULT),
                // CAST: an error number.
                Err(_) => match Error::from_errno(got as c_int) {
                    // The end of all addresses, where no program has memory.
                    EOVERFLOW => result = Err(EFAULT),
                    other => result = Err(other),
                },
            }
            if result.is_err() {
                break;
            }
        }
        pages.truncate(done);
        // INVARIANT: What could not be pinned is not among `pages`.
        let this = Self {
            pages,
            // CAST: less than a page.
            offset: (address % PAGE_SIZE as u64) as u32,
            len,
            writable,
            _charge: charge,
        };
        // If not all is pinned, this gives back what is.
        result.map(|()| this)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Where it begins within its first page, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn pages(&self) -> &[*mut bindings::page] {
        &self.pages
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // CAST: as above.
        let count = self.pages.len() as c_ulong;
        // SAFETY: By the type invariants they are pinned, and this gives them back once.
        unsafe { bindings::rds_unpin_pages(self.pages.as_mut_ptr(), count, self.writable) };
    }
}
