// SPDX-License-Identifier: GPL-2.0

//! A spinlock that keeps softirqs of this CPU out while it is held.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)
//!
//! The lock for everything that both system calls and completion handlers touch. There is no
//! variant for hard interrupts on purpose: disabling softirqs is a counter, so guards may be
//! dropped in any order, and no handler of ours that runs in a hard interrupt takes a lock.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{Backend, Guard, Lock},
};

/// Backend for [`SpinLockBh`].
pub(crate) struct SpinLockBhBackend;

/// A spinlock for process and softirq context.
pub(crate) type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// What holds a [`SpinLockBh`].
pub(crate) type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

// SAFETY: The C spinlock gives exclusive ownership between lock and unlock, also against softirqs;
// `relock` is the default, which locks the same way.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: The caller gives a lock to initialise, and a name and key that live for ever.
        unsafe { bindings::rds_spin_lock_init(ptr, name, key.cast()) };
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller says that the lock is initialised.
        unsafe { bindings::rds_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller says that the lock is initialised.
        unsafe { bindings::rds_spin_trylock_bh(ptr) }.then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller says that this context owns the lock.
        unsafe { bindings::rds_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_PROVE_LOCKING) {
            // SAFETY: The caller says that the lock is initialised.
            unsafe { bindings::rds_lockdep_assert_held(ptr) }
        }
    }
}

/// Makes a [`SpinLockBh`] initialiser with a name and a lock class of its own.
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::kapi::sync::SpinLockBh::new($inner, ::kernel::c_str!($name), {
            ::kernel::static_lock_class!()
        })
    };
}
pub(crate) use new_spinlock_bh;
