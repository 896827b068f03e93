// SPDX-License-Identifier: GPL-2.0

//! Rate-limited messages, for what a peer or a user can make happen again and again.

/// Whether a rate-limited message may be printed now: one that says that something has `changed`, or
/// another one. Any context.
pub(crate) fn may_print(changed: bool) -> bool {
    // SAFETY: The function has no preconditions.
    unsafe { crate::bindings::rds_printk_ratelimit(changed) }
}

/// `pr_warn!`, at most ten times in five seconds for the whole module.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print(false) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// `pr_info!`, at most ten times in five seconds for the whole module.
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print(false) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of a connection that comes or goes, at most ten times in five seconds for the whole
/// module. They are counted apart from the messages that say why.
macro_rules! pr_change_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print(true) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

pub(crate) use {pr_change_ratelimited, pr_info_ratelimited, pr_warn_ratelimited};
