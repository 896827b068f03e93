// SPDX-License-Identifier: GPL-2.0

//! Rate-limited messages, for what a peer or a user can make happen again and again.

/// Whether a rate-limited message may be printed now. Any context.
pub(crate) fn may_print() -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { crate::bindings::rds_printk_ratelimit() }
}

/// `pr_warn!`, at most ten times in five seconds for the whole module.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print() {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// `pr_info!`, at most ten times in five seconds for the whole module.
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print() {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

pub(crate) use {pr_info_ratelimited, pr_warn_ratelimited};
