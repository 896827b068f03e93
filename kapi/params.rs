// SPDX-License-Identifier: GPL-2.0

//! Module parameters. They do not change after the module is loaded.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::bindings;

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident = $get:ident,)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name() -> u32 {
            // SAFETY: The function has no preconditions.
            unsafe { bindings::$get() }
        }
    )*};
}

parameters! {
    /// Maximum payload of a frame in bytes.
    max_frag = rds_rust_param_max_frag,
    /// Maximum memory of one buffer pool in MiB; 0 if the parameter is not set.
    pool_limit_mib = rds_rust_param_pool_limit_mib,
    /// Maximum number of connections.
    max_conns = rds_rust_param_max_conns,
    /// Maximum number of connections to one peer address.
    max_conns_per_peer = rds_rust_param_max_conns_per_peer,
    /// Seconds without a message after which a connection is closed; 0 for never.
    idle_secs = rds_rust_param_idle_secs,
    /// Number of retransmissions of a device when its peer does not acknowledge.
    rds_ib_retry_count = rds_rust_param_rds_ib_retry_count,
}
