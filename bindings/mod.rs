// SPDX-License-Identifier: GPL-2.0

//! The raw C interface, as bindgen makes it from `bindings.h`.
//!
//! Nothing but `kapi/` uses this module: it wraps each of these items in a type that is safe to
//! use.

// An older compiler does not know each of the lints.
#![allow(unknown_lints)]
#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unnecessary_transmutes,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::MaybeZeroable;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!(env!("RDS_BINDINGS"));
