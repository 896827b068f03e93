// SPDX-License-Identifier: GPL-2.0

//! The interface for programs: numbers and records of `include/uapi/linux/rds.h`.
//!
//! The records are read and written field by field, so no program can cause a panic. Like `proto/`,
//! the files are compiled for the build host, too, by `tests/host`.

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub(crate) mod info;
pub(crate) mod rdma;
