// SPDX-License-Identifier: GPL-2.0

//! Keys of the tracepoints in `rds_trace.h`.
//!
//! `kernel::tracepoint` looks for tracepoints among the bindings of the `kernel` crate, so it
//! cannot be used by a module. A key is a static key: while the tracepoint is disabled, its test is
//! one instruction that does nothing, and enabling it patches the code. Kbuild sets
//! `rds_static_keys` if the kernel's build folder has the assembly for that. Otherwise the key is
//! read. An atomic read of the `kernel` crate would be a call of a helper. With `rds_untraced`
//! nothing is tested: `make bench-traces` compares with such a module.

macro_rules! keys {
    ($($name:ident => $point:ident,)*) => {$(
        /// Returns `true` if the tracepoint is enabled.
        #[inline(always)]
        pub(crate) fn $name() -> bool {
            #[cfg(all(CONFIG_TRACEPOINTS, rds_static_keys, not(rds_untraced)))]
            // SAFETY: The tracepoint is a static of this module, and `key` is its static key, to
            // which C gives its initial value.
            unsafe {
                kernel::jump_label::arch_static_branch!(
                    super::$point,
                    super::tracepoint,
                    key,
                    false
                )
            }
            #[cfg(all(CONFIG_TRACEPOINTS, not(rds_static_keys), not(rds_untraced)))]
            {
                // SAFETY: This only takes an address.
                let enabled = unsafe { &raw mut super::$point.key.key.enabled.counter };
                // SAFETY: The tracepoint is a static of this module. This is `READ_ONCE()`: other
                // CPUs may change the number meanwhile, and any value that it had will do.
                unsafe { enabled.read_volatile() != 0 }
            }
            #[cfg(any(not(CONFIG_TRACEPOINTS), rds_untraced))]
            false
        }
    )*};
}

keys! {
    conn_state_enabled => __tracepoint_rds_conn_state,
    drop_enabled => __tracepoint_rds_drop,
    error_enabled => __tracepoint_rds_error,
    congestion_enabled => __tracepoint_rds_congestion,
    msg_queued_enabled => __tracepoint_rds_msg_queued,
    msg_posted_enabled => __tracepoint_rds_msg_posted,
    msg_acked_enabled => __tracepoint_rds_msg_acked,
    msg_received_enabled => __tracepoint_rds_msg_received,
    msg_delivered_enabled => __tracepoint_rds_msg_delivered,
    msg_read_enabled => __tracepoint_rds_msg_read,
    send_completed_enabled => __tracepoint_rds_send_completed,
    recv_completed_enabled => __tracepoint_rds_recv_completed,
    recv_posted_enabled => __tracepoint_rds_recv_posted,
    recv_ring_empty_enabled => __tracepoint_rds_recv_ring_empty,
    op_posted_enabled => __tracepoint_rds_op_posted,
    op_completed_enabled => __tracepoint_rds_op_completed,
    mr_registered_enabled => __tracepoint_rds_mr_registered,
    mr_released_enabled => __tracepoint_rds_mr_released,
}
