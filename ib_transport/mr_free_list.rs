// SPDX-License-Identifier: GPL-2.0

//! What a device keeps of regions that are gone, for those to come: to make one anew takes it long.

use crate::kapi::errno::Errno;
use kernel::prelude::*;

/// The most pages that a region may have, unless the device has a lower limit: 1 MiB that does not begin with a page.
const MAX_PAGES: u32 = 257;
/// Pages of the smaller kind of regions.
const SMALL_PAGES: u32 = 3;
/// How many of each kind are kept.
const MOST: usize = 64;

/// Those of one kind.
struct ListKind<T> {
    pages: u32,
    kept: KVec<T>,
}

impl<T> ListKind<T> {
    /// Has room for all of them. May sleep.
    fn new(pages: u32) -> Result<Self> {
        Ok(Self {
            pages,
            kept: KVec::with_capacity(MOST, GFP_KERNEL)?,
        })
    }
}

fn is_small(pages: usize) -> bool {
    // CAST: small.
    pages <= SMALL_PAGES as usize
}

/// Two kinds of things that wait to be used again: for a few pages, and for many.
pub(crate) struct MrFreeList<T> {
    small: ListKind<T>,
    large: ListKind<T>,
}

impl<T> MrFreeList<T> {
    /// Has none. `most`: pages of a region that the device can make; 0 if it can make none. May sleep.
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

    /// How many pages a new one for `pages` has room for. Fails with EOPNOTSUPP if the device makes none, EMSGSIZE if
    /// none is so large.
    pub(crate) fn room_for(&self, pages: usize) -> Result<u32> {
        let kind = if is_small(pages) {
            &self.small
        } else {
            &self.large
        };
        match kind.pages {
            0 => Err(Errno::NotSupported.into()),
            // CAST: a `u32` fits.
            room if pages > room as usize => Err(Errno::MessageTooLong.into()),
            room => Ok(room),
        }
    }

    /// One for so many pages, if there is one.
    pub(crate) fn take(&mut self, pages: usize) -> Option<T> {
        self.kind(pages).kept.pop()
    }

    /// Keeps one that was for so many pages, or gives it back if there are enough.
    pub(crate) fn keep(&mut self, pages: usize, it: T) -> Option<T> {
        let kept = &mut self.kind(pages).kept;
        kept.push_within_capacity(it).err().map(|full| full.0)
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.small.kept.clear();
        self.large.kept.clear();
    }
}
