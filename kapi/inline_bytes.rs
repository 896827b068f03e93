// SPDX-License-Identifier: GPL-2.0

//! A few bytes kept in place, without the cost of clearing room that is then overwritten.

use core::{mem::MaybeUninit, ptr, slice};
use kernel::prelude::*;

/// Leaves memory as it is.
fn uninit<const N: usize>() -> impl Init<[MaybeUninit<u8>; N]> {
    // SAFETY: Any memory is a valid array of bytes that may be uninitialised.
    unsafe { pin_init::init_from_closure(|_| Ok(())) }
}

/// Up to `N` bytes, which is less than 256.
///
/// # Invariants
///
/// `len` is at most `N`, and so many of `bytes` are initialised.
pub(crate) struct InlineBytes<const N: usize> {
    len: u8,
    bytes: [MaybeUninit<u8>; N],
}

impl<const N: usize> InlineBytes<N> {
    /// No bytes.
    pub(crate) fn init() -> impl Init<Self> {
        const { assert!(N <= u8::MAX as usize) };
        init!(Self {
            // INVARIANT: So none of `bytes` needs to be initialised.
            len: 0,
            bytes <- uninit(),
        })
    }

    /// Replaces the bytes by a copy of `from`. False, and nothing is changed, if there is no room.
    pub(crate) fn set(&mut self, from: &[u8]) -> bool {
        if from.len() > N {
            return false;
        }
        // SAFETY: There is room for all of `from`, which `&mut self` cannot overlap.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.bytes.as_mut_ptr().cast(), from.len());
        }
        // CAST: at most `N`, which `init` has checked.
        // INVARIANT: So many were just copied.
        self.len = from.len() as u8;
        true
    }

    /// Replaces the bytes by what `fill` writes to the first `len` bytes; it returns how many of
    /// them are initialised. `None`, and nothing is called, if there is no room.
    ///
    /// # Safety
    ///
    /// `fill` must have initialised as many bytes, from the start, as it says.
    pub(super) unsafe fn fill(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> usize,
    ) -> Option<usize> {
        let filled = fill(self.bytes.get_mut(..len)?).min(len);
        // CAST: As in `set`.
        // INVARIANT: The caller vouches for `fill`.
        self.len = filled as u8;
        Some(filled)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: By the type invariants these are initialised.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len.into()) }
    }
}
