// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers for C interfaces of the kernel that the `kernel` crate does not cover.
//!
//! Only this folder and `bindings/` contain `unsafe` code. Nothing here depends on RDS, except
//! the prefix of the helper functions. Each file is written so that it could move into the `kernel`
//! crate.

#![warn(clippy::multiple_unsafe_ops_per_block)]

pub(crate) mod alloc;
mod batches;
mod compat;
pub(crate) mod debugfs;
pub(crate) mod errno;
mod inline_bytes;
pub(crate) mod net;
pub(crate) mod pin;
pub(crate) mod print;
pub(crate) mod rdma;
pub(crate) mod shrinker;
pub(crate) mod sync;
pub(crate) mod sysctl;
pub(crate) mod task;
pub(crate) mod time;

pub(crate) use batches::walk_in_batches;
pub(crate) use inline_bytes::InlineBytes;
