// SPDX-License-Identifier: GPL-2.0

//! Data structures of the module that need `unsafe`, under Miri: queues, buffers and their shards,
//! rings of work requests.
//!
//! The files are those of the module, and so are the KUnit suites. Their environment is modelled
//! here. It has the part of the `kernel` crate that they use (in `kernel/`), and the unrelated
//! parts of `kapi`. Its `bindings` have a page allocator and a device.
//!
//! `make test-miri` runs the tests with a nightly toolchain. Miri needs it, and so do smart
//! pointers like the kernel's.

#![cfg(test)]
#![feature(arbitrary_self_types, coerce_unsized, unsize)]
// Parts of the files are unused here.
#![allow(dead_code, unused_imports, unused_macros)]

// The files of the module name the crate `kernel`.
extern crate self as kernel;

#[path = "kernel/alloc.rs"]
pub mod alloc;
#[path = "kernel/error.rs"]
pub mod error;
#[path = "kernel/list.rs"]
pub mod list;
#[path = "kernel/pin_init.rs"]
pub mod pin_init;
#[path = "kernel/prelude.rs"]
pub mod prelude;
#[path = "kernel/sync/mod.rs"]
pub mod sync;
#[path = "kernel/workqueue.rs"]
pub mod workqueue;

pub mod fmt {
    pub use core::fmt::*;
}
#[macro_export]
macro_rules! fmt {
    ($($arguments:tt)*) => { ::core::format_args!($($arguments)*) };
}

pub mod cpu {
    pub struct CpuId;

    impl CpuId {
        pub fn current() -> Self {
            Self
        }

        pub fn as_u32(&self) -> u32 {
            0
        }
    }
}

pub mod page {
    pub const PAGE_SIZE: usize = 4096;
}

mod bindings;
mod kapi;
mod recv_pool;

/// The path that the suites have in the module.
mod kunit {
    pub(crate) use crate::kunit_pool_sizes as pool_sizes;
}

#[path = "../../kunit/arenas.rs"]
mod kunit_arenas;
#[path = "../../kunit/fifo.rs"]
mod kunit_fifo;
#[path = "../../kunit/pool_sizes.rs"]
mod kunit_pool_sizes;
#[path = "../../kunit/recv_pool.rs"]
mod kunit_recv_pool;
