// SPDX-License-Identifier: GPL-2.0

//! `kernel::workqueue`. Timers are in `kapi::sync`.

use core::marker::PhantomData;

pub trait WorkItem<const ID: u64 = 0> {
    type Pointer;

    fn run(this: Self::Pointer);
}

/// Placeholder for the kernel's timer.
pub struct DelayedWork<T, const ID: u64 = 0>(PhantomData<fn(T)>);

impl<T, const ID: u64> DelayedWork<T, ID> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

#[macro_export]
macro_rules! new_delayed_work {
    ($name:literal) => {
        $crate::workqueue::DelayedWork::new()
    };
}

#[macro_export]
macro_rules! impl_has_delayed_work {
    ($($item:tt)*) => {};
}
