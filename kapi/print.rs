// SPDX-License-Identifier: GPL-2.0

//! Rate-limited messages, for what a peer or a user can make happen again and again.

/// What messages are about. Each kind has a limit of its own, so that who makes many of one kind hides none of
/// another.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum About {
    /// What goes wrong.
    Trouble = 0,
    /// Connections that come and go.
    Change = 1,
    /// What programs of this node ask for in vain.
    Program = 2,
    /// Connections and operations of programs of this node that peers do not have, or refuse.
    Attempt = 3,
}

/// Whether a rate-limited message may be printed now. Any context.
pub(crate) fn may_print(about: About) -> bool {
    // SAFETY: The function takes any number below 4.
    unsafe { crate::bindings::rds_printk_ratelimit(about as u32) }
}

/// `pr_warn!`, at most ten times in five seconds for the whole module.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Trouble) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// `pr_info!`, at most ten times in five seconds for the whole module.
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Trouble) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of a connection that comes or goes, at most ten times in five seconds for the whole module.
macro_rules! pr_change_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Change) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of what a program asked for in vain, at most ten times in five seconds for the whole module.
macro_rules! pr_program_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Program) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of what a program tries in vain with a peer, at most ten times in five seconds for the whole module.
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
