// SPDX-License-Identifier: GPL-2.0

//! Module parameters. They do not change after the module is loaded.
//!
//! C header: `bindings/helpers_params.h`. The C functions have no arguments, so calls need no
//! `unsafe`.

#![deny(unsafe_code)]

/// Maximum payload of a frame in bytes.
#[cfg(CONFIG_RDS_RUST_RDMA)]
pub(crate) use crate::bindings::rds_rust_param_max_frag as max_frag;

/// Maximum memory of one buffer pool in MiB; 0 if the parameter is not set.
pub(crate) use crate::bindings::rds_rust_param_pool_limit_mib as pool_limit_mib;

/// Maximum number of connections.
pub(crate) use crate::bindings::rds_rust_param_max_conns as max_conns;

/// Maximum number of connections to one peer address.
pub(crate) use crate::bindings::rds_rust_param_max_conns_per_peer as max_conns_per_peer;

/// Seconds without a message after which a connection is closed; 0 for never.
pub(crate) use crate::bindings::rds_rust_param_idle_secs as idle_secs;

/// Number of retransmissions of a device when its peer does not acknowledge.
#[cfg(CONFIG_RDS_RUST_RDMA)]
pub(crate) use crate::bindings::rds_rust_param_rds_ib_retry_count as rds_ib_retry_count;

/// 1 if RDS over TCP is wanted, otherwise 0.
#[cfg(CONFIG_RDS_RUST_TCP)]
pub(crate) use crate::bindings::rds_rust_param_tcp as tcp;
