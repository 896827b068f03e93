// SPDX-License-Identifier: GPL-2.0

//! Free list of MRs. Allocating an MR is slow, so released MRs are reused.

use crate::kapi::errno::Errno;
use kernel::prelude::*;

/// Maximum number of pages of an MR, unless the device has a lower limit: 1 MiB that does not begin
/// at a page boundary.
const MAX_PAGES: u32 = 257;
/// Number of pages of a small MR.
const SMALL_PAGES: u32 = 3;
/// Maximum number of free MRs of each size.
const MOST: usize = 64;

/// Free MRs of one size.
struct ListKind<T> {
    pages: u32,
    kept: KVec<T>,
}

impl<T> ListKind<T> {
    /// Creates an empty list with memory for [`MOST`] entries.
    ///
    /// # Context
    ///
    /// May sleep.
    fn new(pages: u32) -> Result<Self> {
        Ok(Self {
            pages,
            kept: KVec::with_capacity(MOST, GFP_KERNEL)?,
        })
    }
}

fn is_small(pages: usize) -> bool {
    // CAST: The number is small.
    pages <= SMALL_PAGES as usize
}

/// Free lists for small and large MRs.
pub(crate) struct MrFreeList<T> {
    small: ListKind<T>,
    large: ListKind<T>,
}

impl<T> MrFreeList<T> {
    /// Creates empty lists. `most` is the maximum number of pages of an MR of the device; 0 if it
    /// supports none.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(most: u32) -> Result<Self> {
        Ok(Self {
            small: ListKind::new(SMALL_PAGES.min(most))?,
            large: ListKind::new(MAX_PAGES.min(most))?,
        })
    }

    fn kind(&mut self, pages: usize) -> &mut ListKind<T> {
        if is_small(pages) {
            &mut self.small
        } else {
            &mut self.large
        }
    }

    /// Returns the number of pages to allocate in a new MR that must hold `pages` pages.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if the device supports no MRs.
    /// - `EMSGSIZE` if `pages` exceeds the maximum.
    pub(crate) fn room_for(&self, pages: usize) -> Result<u32> {
        let kind = if is_small(pages) {
            &self.small
        } else {
            &self.large
        };
        match kind.pages {
            0 => Err(Errno::NotSupported.into()),
            // CAST: `usize` holds a `u32`.
            room if pages > room as usize => Err(Errno::MessageTooLong.into()),
            room => Ok(room),
        }
    }

    /// Takes a free MR for `pages` pages.
    pub(crate) fn take(&mut self, pages: usize) -> Option<T> {
        self.kind(pages).kept.pop()
    }

    /// Adds an MR that was used for `pages` pages. Returns it if the list is full.
    pub(crate) fn keep(&mut self, pages: usize, it: T) -> Option<T> {
        let kept = &mut self.kind(pages).kept;
        kept.push_within_capacity(it).err().map(|full| full.0)
    }

    /// Takes a free MR of any size. Its drop sleeps, so the caller drops it without locks.
    pub(crate) fn take_any(&mut self) -> Option<T> {
        self.small.kept.pop().or_else(|| self.large.kept.pop())
    }
}
