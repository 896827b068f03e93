// SPDX-License-Identifier: GPL-2.0

//! Parts of `kapi` that the protocols need.

pub(crate) mod sync {
    use crate::sync::atomic::{Atomic, AtomicType, Relaxed};

    /// Trait of the same name as in the module, where it reads without an atomic operation.
    pub(crate) trait Peek<T> {
        fn peek(&self) -> T;
    }

    impl<T: AtomicType> Peek<T> for Atomic<T> {
        fn peek(&self) -> T {
            self.load(Relaxed)
        }
    }
}
