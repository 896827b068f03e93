// SPDX-License-Identifier: GPL-2.0

//! Short byte strings stored inline. The unused part is never cleared.

use core::{
    mem::MaybeUninit,
    ptr,
    slice, //
};
use kernel::prelude::*;

/// Initialises nothing.
fn uninit<const N: usize>() -> impl Init<[MaybeUninit<u8>; N]> {
    // SAFETY: An array of `MaybeUninit` bytes is valid in any state.
    unsafe { pin_init::init_from_closure(|_| Ok(())) }
}

/// Up to `N` bytes; `N` is less than 256.
///
/// # Invariants
///
/// `len` is at most `N`, and the first `len` of `bytes` are initialised.
pub(crate) struct InlineBytes<const N: usize> {
    len: u8,
    bytes: [MaybeUninit<u8>; N],
}

impl<const N: usize> InlineBytes<N> {
    /// Returns an initialiser for an empty string.
    pub(crate) fn init() -> impl Init<Self> {
        const { assert!(N <= u8::MAX as usize) };
        init!(Self {
            // INVARIANT: With `len` 0 none of `bytes` needs to be initialised.
            len: 0,
            bytes <- uninit(),
        })
    }

    /// Replaces the contents by a copy of `from`. Returns `false` and changes nothing if `from` is
    /// longer than `N`.
    pub(crate) fn set(&mut self, from: &[u8]) -> bool {
        if from.len() > N {
            return false;
        }
        // SAFETY: There is room for all of `from`, which cannot overlap `&mut self`.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.bytes.as_mut_ptr().cast(), from.len());
        }
        // CAST: at most `N`, which `init` has checked.
        // INVARIANT: As many bytes were copied just now.
        self.len = from.len() as u8;
        true
    }

    /// Replaces the contents by the bytes that `fill` writes to a buffer of `len` bytes. `fill`
    /// returns the number of bytes that it initialised.
    ///
    /// Returns `None` without a call of `fill` if `len` is more than `N`.
    ///
    /// # Safety
    ///
    /// `fill` must have initialised as many bytes, from the start, as it returns.
    pub(super) unsafe fn fill(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> usize,
    ) -> Option<usize> {
        let filled = fill(self.bytes.get_mut(..len)?).min(len);
        // CAST: As in `set`.
        // INVARIANT: By the caller's guarantee `fill` has initialised these bytes.
        self.len = filled as u8;
        Some(filled)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: By the type invariants the first `len` bytes are initialised.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len.into()) }
    }
}
