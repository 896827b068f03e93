// SPDX-License-Identifier: GPL-2.0

//! Spinlock that disables softirqs on the local CPU while it is held.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)
//!
//! It protects data that system calls and completion handlers share. A variant for hard interrupts
//! is not needed, because no hard interrupt handler of the module takes a lock. Disabling softirqs
//! is counted, so guards may be dropped in any order.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

/// Lock backend of [`SpinLockBh`].
pub(crate) struct SpinLockBhBackend;

/// A spinlock for process and softirq context.
pub(crate) type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// Guard of a locked [`SpinLockBh`].
pub(crate) type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

// SAFETY: The C spinlock gives exclusive ownership between lock and unlock, also against softirqs.
// `relock` is the default implementation, which locks the same way.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: The caller passes a lock to initialise, and a static name and key.
        unsafe { bindings::rds_rust_spin_lock_init(ptr, name, key.cast()) };
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        #[cfg(rds_kunit)]
        holds::note(ptr.addr());
        // SAFETY: By the caller's guarantee the lock is initialised.
        unsafe { bindings::rds_rust_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: By the caller's guarantee the lock is initialised.
        unsafe { bindings::rds_rust_spin_trylock_bh(ptr) }.then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: By the caller's guarantee this context holds the lock.
        unsafe { bindings::rds_rust_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_PROVE_LOCKING) {
            // SAFETY: By the caller's guarantee the lock is initialised.
            unsafe { bindings::rds_rust_lockdep_assert_held(ptr) }
        }
    }
}

/// Creates an initialiser of a [`SpinLockBh`] with a name and its own lock class.
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::kapi::sync::SpinLockBh::new($inner, ::kernel::c_str!($name), {
            ::kernel::static_lock_class!()
        })
    };
}
pub(crate) use new_spinlock_bh;

#[cfg(rds_kunit)]
pub(crate) use holds::count_holds;

/// Counts how often locks are held, for tests of the work that is done in one hold.
#[cfg(rds_kunit)]
mod holds {
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    /// Addresses whose locks are counted. Only one test at a time counts.
    static FROM: Atomic<usize> = Atomic::new(0);
    static TO: Atomic<usize> = Atomic::new(0);
    static HOLDS: Atomic<usize> = Atomic::new(0);

    pub(super) fn note(lock: usize) {
        if (FROM.load(Relaxed)..TO.load(Relaxed)).contains(&lock) {
            HOLDS.fetch_add(1, Relaxed);
        }
    }

    /// Calls `function`. Returns its result, and how often other code than
    /// [`try_lock`](super::SpinLockBh) has locked locks in `object` meanwhile.
    ///
    /// # Context
    ///
    /// That of `function`.
    pub(crate) fn count_holds<T, R>(object: &T, function: impl FnOnce() -> R) -> (R, usize) {
        let from = core::ptr::from_ref(object).addr();
        HOLDS.store(0, Relaxed);
        TO.store(from.wrapping_add(size_of::<T>()), Relaxed);
        FROM.store(from, Relaxed);
        let result = function();
        TO.store(0, Relaxed);
        (result, HOLDS.load(Relaxed))
    }
}
