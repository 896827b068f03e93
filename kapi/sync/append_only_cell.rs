// SPDX-License-Identifier: GPL-2.0

//! A value that is read all the time and replaced hardly ever.

use super::{new_spinlock_bh, SpinLockBh};
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// The latest of some values, read without a lock. All earlier ones are kept as long as this is, so
/// it is for what changes a few times in a life.
///
/// # Invariants
///
/// `current` points to a value of which `all` has a reference. What is in `all` stays there.
#[pin_data]
pub(crate) struct AppendOnlyCell<T: Send + Sync + 'static> {
    current: Atomic<*mut T>,
    #[pin]
    all: SpinLockBh<KVec<Arc<T>>>,
}

impl<T: Send + Sync + 'static> AppendOnlyCell<T> {
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

    /// The latest value. Any context.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        let current = self.current.load(ordering::Acquire);
        // SAFETY: By the type invariants the value lives as long as `self`.
        unsafe { &*current }
    }

    /// Makes `value` the latest. Fails with ENOMEM, and changes nothing. Any context but a hard
    /// interrupt.
    pub(crate) fn set(&self, value: &Arc<T>) -> Result {
        let mut all = self.all.lock();
        if !all.iter().any(|known| Arc::ptr_eq(known, value)) {
            all.push(value.clone(), GFP_ATOMIC)?;
        }
        // INVARIANT: `all` has it.
        self.current
            .store(Arc::as_ptr(value).cast_mut(), ordering::Release);
        Ok(())
    }
}
