// SPDX-License-Identifier: GPL-2.0

//! KUnit test of the sizes of allocations.

use crate::kapi::alloc::{
    kmalloc_size,
    kmalloc_size_roundup, //
};
use kernel::prelude::*;

#[kunit_tests(rds_alloc)]
mod suite {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernel() {
        for bytes in 0..=(64 << 10) + 1 {
            assert_eq!(kmalloc_size(bytes), kmalloc_size_roundup(bytes));
        }
    }
}
