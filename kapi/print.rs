// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log messages, for events that peers or users can cause repeatedly.

/// Kinds of log messages. Each kind has its own rate limit, so a flood of one kind does not
/// suppress others.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum About {
    /// Errors.
    Failure = 0,
    /// Establishment and loss of connections.
    Change = 1,
    /// Failed requests of local programs.
    Program = 2,
    /// Connections and operations of local programs that a peer rejects or cannot serve.
    Attempt = 3,
}

/// Returns `true` if the rate limit permits a message of this kind now. The message counts.
///
/// # Context
///
/// Any context.
pub(crate) fn may_print(about: About) -> bool {
    // SAFETY: The function accepts any number below 4.
    unsafe { crate::bindings::rds_rust_printk_ratelimit(about as u32) }
}

/// `pr_warn!` of kind [`About::Failure`], at most ten messages in five seconds for the whole
/// module.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Failure`]. It shares the limit of `pr_warn_ratelimited!`.
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Change`], at most ten messages in five seconds for the whole module.
macro_rules! pr_change_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Change) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Program`], at most ten messages in five seconds for the whole
/// module.
macro_rules! pr_program_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Program) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Attempt`], at most ten messages in five seconds for the whole
/// module.
macro_rules! pr_attempt_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Attempt) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

pub(crate) use {
    pr_attempt_ratelimited, pr_change_ratelimited, pr_info_ratelimited, pr_program_ratelimited,
    pr_warn_ratelimited,
};
