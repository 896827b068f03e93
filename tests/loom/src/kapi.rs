// SPDX-License-Identifier: GPL-2.0

//! Parts of `kapi` that the protocols need.

pub(crate) mod sync {
    use crate::sync::atomic::{Atomic, AtomicType, Relaxed};

    /// Trait of the same name as in the module, where it reads without an atomic operation.
    pub(crate) trait ReadOnce<T> {
        fn read_once(&self) -> T;
    }

    impl<T: AtomicType> ReadOnce<T> for Atomic<T> {
        fn read_once(&self) -> T {
            self.load(Relaxed)
        }
    }
}
