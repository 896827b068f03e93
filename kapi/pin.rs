// SPDX-License-Identifier: GPL-2.0

//! Long-term pinned memory of programs, for access by devices.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h); see
//! `Documentation/core-api/pin_user_pages.rst`.

use crate::bindings;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Pages charged to the `pinned_vm` of a process. `RLIMIT_MEMLOCK` limits them unless the process
/// has `CAP_IPC_LOCK`.
///
/// # Invariants
///
/// `0` was filled by `rds_rust_pin_charge()`.
struct PinCharge(bindings::rds_rust_pin_charge);

// SAFETY: A charge holds a counted reference to the `mm`, which any thread may drop.
unsafe impl Send for PinCharge {}
// SAFETY: A shared reference offers no operation.
unsafe impl Sync for PinCharge {}

impl PinCharge {
    fn take(pages: usize) -> Result<Self> {
        let mut charge = bindings::rds_rust_pin_charge::default();
        // CAST: a `long` has as many bits as a `usize`.
        let pages = pages as c_ulong;
        // SAFETY: `charge` has room for the result.
        kernel::error::to_result(unsafe { bindings::rds_rust_pin_charge(&mut charge, pages) })?;
        // INVARIANT: `charge` was filled just now.
        Ok(Self(charge))
    }
}

impl Drop for PinCharge {
    fn drop(&mut self) {
        // SAFETY: By the type invariants this is a valid charge; it is returned only here.
        unsafe { bindings::rds_rust_pin_uncharge(&mut self.0) };
    }
}

/// Pinned memory of a program. It stays valid after the program exits. Dropping it sleeps.
///
/// # Invariants
///
/// `pages` were pinned by `rds_rust_pin_pages()`. The memory begins `offset` bytes, less than a
/// page, into the first page. It ends in the last page.
pub(crate) struct PinnedMemory {
    pages: KVVec<*mut bindings::page>,
    offset: u32,
    /// In bytes.
    len: u32,
    writable: bool,
    _charge: PinCharge,
}

// SAFETY: Any thread may unpin pages.
unsafe impl Send for PinnedMemory {}
// SAFETY: Nothing changes through a shared reference.
unsafe impl Sync for PinnedMemory {}

/// Returns the number of pages that the memory touches. `None` if `len` is 0 or the memory wraps
/// around.
fn pages_of(address: u64, len: u64) -> Option<u64> {
    let page = PAGE_SIZE as u64;
    let last = address.checked_add(len.checked_sub(1)?)?;
    (last / page).checked_sub(address / page)?.checked_add(1)
}

impl PinnedMemory {
    /// Returns `true` if the calling process may lock any memory.
    ///
    /// # Context
    ///
    /// Process context of a program.
    pub(crate) fn is_permitted() -> bool {
        // SAFETY: The function has no requirements.
        unsafe { bindings::rds_rust_may_pin() }
    }

    /// Pins memory of the calling process. `writable` means that a device writes to it.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the memory is empty or wraps around.
    /// - `EFAULT` if the memory is not mapped, or is read-only but must be writable.
    /// - `EPERM` if the process may not lock memory at all.
    /// - `ENOMEM` if `RLIMIT_MEMLOCK` would be exceeded or there is no memory.
    /// - `EOPNOTSUPP` if the memory cannot be pinned for long.
    ///
    /// # Context
    ///
    /// Process context of a program; sleeps.
    pub(crate) fn pin(address: u64, len: u32, writable: bool) -> Result<Self> {
        let count = pages_of(address, len.into()).ok_or(EINVAL)?;
        let count = usize::try_from(count)?;
        let charge = PinCharge::take(count)?;
        let mut pages = KVVec::from_elem(core::ptr::null_mut(), count, GFP_KERNEL_ACCOUNT)?;
        let mut done = 0usize;
        let mut at = usize::try_from(address)? & !(PAGE_SIZE - 1);
        let mut result = Ok(());
        while let Some(rest) = pages.get_mut(done..).filter(|rest| !rest.is_empty()) {
            // CAST: less than 2^32 bytes touch less than 2^21 pages.
            let want = rest.len() as c_uint;
            // SAFETY: `rest` has room for `want` pages.
            let got =
                unsafe { bindings::rds_rust_pin_pages(at, want, writable, rest.as_mut_ptr()) };
            match usize::try_from(got) {
                Ok(got) if got > 0 => {
                    done = done.saturating_add(got);
                    at = at.saturating_add(got.saturating_mul(PAGE_SIZE));
                }
                Ok(_) => result = Err(EFAULT),
                // CAST: an error number.
                Err(_) => match Error::from_errno(got as c_int) {
                    // The range ends at the end of the address space, where no program has memory.
                    EOVERFLOW => result = Err(EFAULT),
                    other => result = Err(other),
                },
            }
            if result.is_err() {
                break;
            }
        }
        pages.truncate(done);
        // INVARIANT: Pages that were not pinned have been truncated from `pages`.
        let this = Self {
            pages,
            // CAST: less than a page.
            offset: (address % PAGE_SIZE as u64) as u32,
            len,
            writable,
            _charge: charge,
        };
        // After an error the drop of `this` unpins the pages pinned so far.
        result.map(|()| this)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the offset of the memory in its first page, in bytes.
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
        // SAFETY: By the type invariants the pages are pinned. They are unpinned only here.
        unsafe { bindings::rds_rust_unpin_pages(self.pages.as_mut_ptr(), count, self.writable) };
    }
}
