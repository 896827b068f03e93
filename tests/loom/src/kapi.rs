// SPDX-License-Identifier: GPL-2.0

//! `kapi`, as far as the protocols need it.

pub(crate) mod sync {
    use crate::sync::atomic::{Atomic, AtomicType, Relaxed};

    /// That of the module, which reads past the atomic.
    pub(crate) trait Peek<T> {
        fn peek(&self) -> T;
    }

    impl<T: AtomicType> Peek<T> for Atomic<T> {
        fn peek(&self) -> T {
            self.load(Relaxed)
        }
    }
}
