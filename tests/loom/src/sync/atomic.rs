// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic` and its counterpart in `core::sync::atomic`, over the atomics of loom.
//!
//! loom has the memory model of C++. The orderings of the kernel's memory model are mapped to it as
//! far as possible. `Full` is a full barrier before and after the operation. A failed
//! compare-and-exchange orders nothing.
//!
//! loom's atomics cannot be created in a constant, so each is created on first use. A model must
//! use an atomic before it shares it, or loom complains. All threads of a model run on one host
//! thread, and switch only in operations of loom.
//!
//! A store is an exchange, because loom would let a plain store come between the halves of a
//! read-modify-write operation. So a reader of a later store still sees the release, which the
//! kernel does not promise.

use loom::sync::atomic::{self as backend, Ordering::SeqCst};
pub use loom::sync::atomic::{fence, Ordering};
use std::cell::OnceCell;

/// The orderings as types.
pub mod ordering {
    use super::Ordering;

    /// C++ ordering of a read-modify-write operation, and whether full barriers surround it.
    pub trait Any {
        const RMW: Ordering;
        const FULL: bool = false;
    }
    /// An ordering of loads.
    pub trait OfLoads {
        const LOAD: Ordering;
    }
    /// An ordering of stores.
    pub trait OfStores {
        const STORE: Ordering;
    }

    pub struct Relaxed;
    pub struct Acquire;
    pub struct Release;
    pub struct Full;

    impl Any for Relaxed {
        const RMW: Ordering = Ordering::Relaxed;
    }
    impl Any for Release {
        const RMW: Ordering = Ordering::Release;
    }
    impl Any for Full {
        const RMW: Ordering = Ordering::AcqRel;
        const FULL: bool = true;
    }
    impl OfLoads for Relaxed {
        const LOAD: Ordering = Ordering::Relaxed;
    }
    impl OfLoads for Acquire {
        const LOAD: Ordering = Ordering::Acquire;
    }
    impl OfStores for Relaxed {
        const STORE: Ordering = Ordering::Relaxed;
    }
    impl OfStores for Release {
        const STORE: Ordering = Ordering::Release;
    }
}
pub use ordering::{Acquire, Full, Relaxed, Release};

/// A type that atomics can hold.
pub trait AtomicType: Copy + PartialEq {
    /// The loom atomic for this type.
    type Word;

    fn word(self) -> Self::Word;
    fn load(word: &Self::Word, order: Ordering) -> Self;
    fn swap(word: &Self::Word, value: Self, order: Ordering) -> Self;
    fn compare_exchange(
        word: &Self::Word,
        old: Self,
        new: Self,
        order: Ordering,
    ) -> Result<Self, Self>;
}

/// A number that atomics can hold.
pub trait AtomicNumber: AtomicType {
    fn fetch_add(word: &Self::Word, value: Self, order: Ordering) -> Self;
    fn fetch_sub(word: &Self::Word, value: Self, order: Ordering) -> Self;
}

macro_rules! atomic_types {
    ($($type:ty => $word:ident),*) => {$(
        impl AtomicType for $type {
            type Word = backend::$word;

            fn word(self) -> Self::Word {
                backend::$word::new(self)
            }

            fn load(word: &Self::Word, order: Ordering) -> Self {
                word.load(order)
            }

            fn swap(word: &Self::Word, value: Self, order: Ordering) -> Self {
                word.swap(value, order)
            }

            fn compare_exchange(
                word: &Self::Word,
                old: Self,
                new: Self,
                order: Ordering,
            ) -> Result<Self, Self> {
                word.compare_exchange(old, new, order, Ordering::Relaxed)
            }
        }
    )*};
}

macro_rules! atomic_numbers {
    ($($type:ty => $word:ident),*) => {
        atomic_types!($($type => $word),*);
        $(
            impl AtomicNumber for $type {
                fn fetch_add(word: &Self::Word, value: Self, order: Ordering) -> Self {
                    word.fetch_add(value, order)
                }

                fn fetch_sub(word: &Self::Word, value: Self, order: Ordering) -> Self {
                    word.fetch_sub(value, order)
                }
            }
        )*
    };
}

atomic_types!(bool => AtomicBool);
atomic_numbers!(u32 => AtomicU32, u64 => AtomicU64, usize => AtomicUsize);

/// An atomic of the kernel.
pub struct Atomic<T: AtomicType> {
    first: T,
    word: OnceCell<T::Word>,
}

// SAFETY: The threads of a model take turns on one thread of the host, and never switch during an
// access to `word`.
unsafe impl<T: AtomicType + Send> Sync for Atomic<T> {}

impl<T: AtomicType> Atomic<T> {
    pub const fn new(first: T) -> Self {
        Self {
            first,
            word: OnceCell::new(),
        }
    }

    fn word(&self) -> &T::Word {
        self.word.get_or_init(|| self.first.word())
    }

    pub fn load<O: ordering::OfLoads>(&self, _: O) -> T {
        T::load(self.word(), O::LOAD)
    }

    pub fn store<O: ordering::OfStores>(&self, value: T, _: O) {
        T::swap(self.word(), value, O::STORE);
    }

    /// Calls `operate`, between full barriers if the ordering has any.
    fn ordered<O: ordering::Any>(&self, operate: impl FnOnce(&T::Word, Ordering) -> T) -> T {
        if O::FULL {
            // loom switches threads in a load, not in a barrier.
            self.load(Relaxed);
            fence(SeqCst);
        }
        let result = operate(self.word(), O::RMW);
        if O::FULL {
            fence(SeqCst);
        }
        result
    }

    pub fn xchg<O: ordering::Any>(&self, value: T, _: O) -> T {
        self.ordered::<O>(|word, order| T::swap(word, value, order))
    }

    pub fn cmpxchg<O: ordering::Any>(&self, old: T, new: T, _: O) -> Result<T, T> {
        // Checked first, because a failed exchange must not have a barrier before it.
        let now = self.load(Relaxed);
        if now != old {
            return Err(now);
        }
        if O::FULL {
            fence(SeqCst);
        }
        let done = T::compare_exchange(self.word(), old, new, O::RMW);
        if O::FULL && done.is_ok() {
            fence(SeqCst);
        }
        done
    }
}

impl<T: AtomicNumber> Atomic<T> {
    pub fn fetch_add<O: ordering::Any>(&self, value: T, _: O) -> T {
        self.ordered::<O>(|word, order| T::fetch_add(word, value, order))
    }

    pub fn fetch_sub<O: ordering::Any>(&self, value: T, _: O) -> T {
        self.ordered::<O>(|word, order| T::fetch_sub(word, value, order))
    }
}

/// `AtomicU64` of `core`.
pub struct AtomicU64(Atomic<u64>);

impl AtomicU64 {
    pub const fn new(first: u64) -> Self {
        Self(Atomic::new(first))
    }

    pub fn load(&self, order: Ordering) -> u64 {
        self.0.word().load(order)
    }

    pub fn store(&self, value: u64, order: Ordering) {
        self.0.word().store(value, order)
    }

    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.word().fetch_add(value, order)
    }
}
