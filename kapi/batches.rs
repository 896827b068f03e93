// SPDX-License-Identifier: GPL-2.0

//! Walks over what a lock protects, in batches that are handled without the lock.

use core::slice;

/// Elements that are collected while the lock is held. At most a batch fits.
pub(crate) struct Collected<'a, T>(slice::IterMut<'a, Option<T>>);

impl<T> Collected<'_, T> {
    /// Adds an element. Drops it if the batch is full.
    #[inline]
    pub(crate) fn push(&mut self, element: T) {
        if let Some(slot) = self.0.next() {
            *slot = Some(element);
        }
    }

    /// Returns the number of elements that still fit.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.0.len()
    }
}

/// Calls `collect`, which takes the lock and adds up to `N` elements, and then `each` for each of
/// them. Continues until `collect` returns `false`: it has reached the end.
///
/// # Errors
///
/// Any error of `collect` or `each`, which ends the walk.
pub(crate) fn walk_in_batches<T, E, const N: usize>(
    mut collect: impl FnMut(&mut Collected<'_, T>) -> Result<bool, E>,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        let mut batch = [const { None }; N];
        let more = collect(&mut Collected(batch.iter_mut()))?;
        batch.into_iter().flatten().try_for_each(&mut each)?;
        if !more {
            return Ok(());
        }
    }
}
