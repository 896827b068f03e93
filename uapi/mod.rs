// SPDX-License-Identifier: GPL-2.0

//! The interface for programs: numbers and records of `include/uapi/linux/rds.h`.
//!
//! bindgen generates them from the header, with an assertion for the size of each record and the
//! offset of each field. [`info`] and [`rdma`] convert between records and values of the module.
//! They find each field at its offset, and no number of a program can cause a panic.
//!
//! Like `proto/`, the files are compiled for the build host, too, by `tests/host`. They contain
//! nothing of the kernel.

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

/// Output of bindgen for `uapi.h`. Types and constants have the names of the header.
mod generated {
    #![allow(
        clippy::all,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        dead_code,
        missing_docs,
        non_camel_case_types,
        unreachable_pub
    )]

    include!(env!("RDS_UAPI"));
}
pub(crate) use generated::*;

// Sizes with which programs were compiled. A header with others is not the one that this module is
// for.
const _: () = {
    assert!(size_of::<rds_info_counter>() == 40);
    assert!(size_of::<rds_info_connection>() == 42);
    assert!(size_of::<rds6_info_connection>() == 65);
    assert!(size_of::<rds_info_message>() == 26);
    assert!(size_of::<rds6_info_message>() == 50);
    assert!(size_of::<rds_info_socket>() == 28);
    assert!(size_of::<rds6_info_socket>() == 52);
    assert!(size_of::<rds_info_rdma_connection>() == 68);
    assert!(size_of::<rds6_info_rdma_connection>() == 92);
    assert!(size_of::<rds_info_tcp_socket>() == 41);
    assert!(size_of::<rds6_info_tcp_socket>() == 64);
    assert!(size_of::<rds_rx_trace_so>() == 4);
    assert!(size_of::<rds_cmsg_rx_trace>() == 32);
    assert!(size_of::<rds_iovec>() == 16);
    assert!(size_of::<rds_get_mr_args>() == 32);
    assert!(size_of::<rds_get_mr_for_dest_args>() == 160);
    assert!(size_of::<rds_free_mr_args>() == 16);
    assert!(size_of::<rds_rdma_args>() == 56);
    assert!(size_of::<rds_atomic_args>() == 72);
    assert!(size_of::<rds_rdma_notify>() == 16);
};
