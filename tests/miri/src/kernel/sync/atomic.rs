// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic`, over the atomics of the host.

use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering as Order},
};

/// The orderings as types.
pub mod ordering {
    use super::Order;

    pub trait Ordering {
        const RMW: Order;
        const LOAD: Order = Order::Relaxed;
        const STORE: Order = Order::Relaxed;
    }

    pub struct Relaxed;
    pub struct Acquire;
    pub struct Release;
    pub struct Full;

    impl Ordering for Relaxed {
        const RMW: Order = Order::Relaxed;
    }
    impl Ordering for Acquire {
        const RMW: Order = Order::Acquire;
        const LOAD: Order = Order::Acquire;
    }
    impl Ordering for Release {
        const RMW: Order = Order::Release;
        const STORE: Order = Order::Release;
    }
    impl Ordering for Full {
        const RMW: Order = Order::SeqCst;
    }
}
pub use ordering::{Acquire, Full, Relaxed, Release};

/// A type that atomics can hold.
///
/// # Safety
///
/// `Word` must have the same layout.
pub unsafe trait AtomicType: Copy {
    type Word;

    fn load(word: &Self::Word, order: Order) -> Self;
    fn store(word: &Self::Word, value: Self, order: Order);
    fn swap(word: &Self::Word, value: Self, order: Order) -> Self;
    fn compare_exchange(
        word: &Self::Word,
        old: Self,
        new: Self,
        order: Order,
    ) -> Result<Self, Self>;
}

/// A number that atomics can hold.
pub trait AtomicNumber: AtomicType {
    fn fetch_add(word: &Self::Word, value: Self, order: Order) -> Self;
    fn fetch_sub(word: &Self::Word, value: Self, order: Order) -> Self;
}

macro_rules! atomic_types {
    ($($type:ty => $word:ty),*) => {$(
        // SAFETY: The host's atomics have the layout of their type.
        unsafe impl AtomicType for $type {
            type Word = $word;

            fn load(word: &Self::Word, order: Order) -> Self {
                word.load(order)
            }

            fn store(word: &Self::Word, value: Self, order: Order) {
                word.store(value, order)
            }

            fn swap(word: &Self::Word, value: Self, order: Order) -> Self {
                word.swap(value, order)
            }

            fn compare_exchange(
                word: &Self::Word,
                old: Self,
                new: Self,
                order: Order,
            ) -> Result<Self, Self> {
                word.compare_exchange(old, new, order, Order::Relaxed)
            }
        }
    )*};
}

macro_rules! atomic_numbers {
    ($($type:ty => $word:ty),*) => {
        atomic_types!($($type => $word),*);
        $(
            impl AtomicNumber for $type {
                fn fetch_add(word: &Self::Word, value: Self, order: Order) -> Self {
                    word.fetch_add(value, order)
                }

                fn fetch_sub(word: &Self::Word, value: Self, order: Order) -> Self {
                    word.fetch_sub(value, order)
                }
            }
        )*
    };
}

atomic_types!(bool => AtomicBool);
atomic_numbers!(i32 => AtomicI32, u32 => AtomicU32, u64 => AtomicU64, usize => AtomicUsize);

/// An atomic of the kernel.
#[repr(transparent)]
pub struct Atomic<T>(UnsafeCell<T>);

// SAFETY: All access is atomic.
unsafe impl<T: AtomicType + Send> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub const fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}

impl<T: AtomicType> Atomic<T> {
    fn word(&self) -> &T::Word {
        // SAFETY: `Word` has the same layout, and all access is atomic.
        unsafe { &*self.as_ptr().cast() }
    }

    pub fn load<O: ordering::Ordering>(&self, _: O) -> T {
        T::load(self.word(), O::LOAD)
    }

    pub fn store<O: ordering::Ordering>(&self, value: T, _: O) {
        T::store(self.word(), value, O::STORE)
    }

    pub fn xchg<O: ordering::Ordering>(&self, value: T, _: O) -> T {
        T::swap(self.word(), value, O::RMW)
    }

    pub fn cmpxchg<O: ordering::Ordering>(&self, old: T, new: T, _: O) -> Result<T, T> {
        T::compare_exchange(self.word(), old, new, O::RMW)
    }
}

impl<T: AtomicNumber> Atomic<T> {
    pub fn fetch_add<O: ordering::Ordering>(&self, value: T, _: O) -> T {
        T::fetch_add(self.word(), value, O::RMW)
    }

    pub fn fetch_sub<O: ordering::Ordering>(&self, value: T, _: O) -> T {
        T::fetch_sub(self.word(), value, O::RMW)
    }
}
