// SPDX-License-Identifier: GPL-2.0

//! Cell for a value that is read often and replaced rarely.

use super::{
    new_spinlock_bh,
    SpinLockBh, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// A cell whose value is read without a lock.
///
/// All earlier values are kept until the cell is dropped. So it is suitable only for values that
/// change a few times.
///
/// # Invariants
///
/// `current` points to a value of which `all` holds a reference. Nothing is removed from `all`.
#[pin_data]
pub(crate) struct AppendOnlyCell<T: Send + Sync + 'static> {
    current: Atomic<*mut T>,
    #[pin]
    all: SpinLockBh<KVec<Arc<T>>>,
}

impl<T: Send + Sync + 'static> AppendOnlyCell<T> {
    /// Creates a cell with a first value.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(first: Arc<T>) -> impl PinInit<Self, Error> {
        let current = Arc::as_ptr(&first).cast_mut();
        // INVARIANT: `all` has the first value.
        try_pin_init!(Self {
            current: Atomic::new(current),
            all <- new_spinlock_bh!(
                {
                    let mut all = KVec::with_capacity(1, GFP_KERNEL)?;
                    all.push(first, GFP_KERNEL)?;
                    all
                },
                "AppendOnlyCell::all"
            ),
        })
    }

    /// Returns the current value.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        let current = self.current.load(ordering::Acquire);
        // SAFETY: By the type invariants the value lives as long as `self`.
        unsafe { &*current }
    }

    /// Replaces the current value.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory; the value is unchanged then.
    ///
    /// # Context
    ///
    /// Any context except hard interrupts.
    pub(crate) fn set(&self, value: &Arc<T>) -> Result {
        let mut all = self.all.lock();
        if !all.iter().any(|known| Arc::ptr_eq(known, value)) {
            all.push(value.clone(), GFP_ATOMIC)?;
        }
        // INVARIANT: `all` holds a reference to `value`.
        self.current
            .store(Arc::as_ptr(value).cast_mut(), ordering::Release);
        Ok(())
    }
}
