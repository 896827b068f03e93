// SPDX-License-Identifier: GPL-2.0

//! The parameters of the module. They do not change once it is loaded.
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
    /// Most payload of a frame, in bytes.
    max_frag = rds_param_max_frag,
    /// Most memory of one pool of buffers, in MiB; 0 if nothing was said.
    pool_limit_mib = rds_param_pool_limit_mib,
    /// Most connections.
    max_conns = rds_param_max_conns,
    /// Most connections with one peer address.
    max_conns_per_peer = rds_param_max_conns_per_peer,
    /// After so many seconds without a message a connection is closed; 0: never.
    idle_secs = rds_param_idle_secs,
    /// How often a device sends again what its peer does not acknowledge.
    rds_ib_retry_count = rds_param_rds_ib_retry_count,
}
