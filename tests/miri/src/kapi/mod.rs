// SPDX-License-Identifier: GPL-2.0

//! `kapi`: the files under test, and stand-ins for others.

#[path = "../../../../kapi/alloc.rs"]
pub(crate) mod alloc;
#[path = "../../../../kapi/errno.rs"]
pub(crate) mod errno;
#[path = "../../../../kapi/inline_bytes.rs"]
mod inline_bytes;
mod inline_bytes_tests;
pub(crate) mod rdma;
pub(crate) mod sync;

pub(crate) mod task {
    pub(crate) fn without_io<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

pub(crate) mod sysctl {
    use core::{
        ffi::c_int,
        ops::RangeInclusive,
        sync::atomic::{AtomicI32, Ordering::Relaxed},
    };

    /// A setting, which only tests change.
    pub(crate) struct Setting(AtomicI32);

    impl Setting {
        pub(crate) const fn new(value: c_int, _: RangeInclusive<c_int>) -> Self {
            Self(AtomicI32::new(value))
        }

        pub(crate) fn set(&self, value: c_int) {
            self.0.store(value, Relaxed);
        }

        pub(crate) fn count(&self) -> u32 {
            self.0.load(Relaxed).try_into().unwrap_or(0)
        }
    }
}
