// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log messages, for events that peers or users can cause repeatedly.
//!
//! A connection has a limit of its own, a quarter of that for the whole module. So the messages of
//! one connection do not suppress those of others. A user may have any number of connections in
//! network namespaces of his, and all peers there. So these log nothing.

use crate::kapi::time;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

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

/// Prepares the rate limits, so that the first messages count correctly on several CPUs. The module
/// calls it once, before any message.
///
/// # Context
///
/// Any context.
pub(crate) fn init_limits() {
    // SAFETY: The module is being loaded, so nothing uses the limits yet.
    unsafe { crate::bindings::rds_rust_printk_ratelimit_init() };
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

/// Returns the result of [`may_print`] while another CPU is in it. There is room for the message.
#[cfg(rds_kunit)]
pub(crate) fn may_print_while_busy(about: About) -> bool {
    // SAFETY: The function accepts any number below 4.
    unsafe { crate::bindings::rds_rust_printk_ratelimit_busy(about as u32) }
}

/// Length of the windows in which messages of a connection are counted.
const WINDOW_NS: u64 = 5_000_000_000;

/// Maximum number of messages of one kind about a connection in one window.
const PER_WINDOW: u64 = 10;

/// Bits of a count in [`LogLimit`]. Four kinds leave half of the word for the number of the window.
const COUNT_BITS: u32 = 8;
const COUNTS: u64 = 0xffff_ffff;

/// Rate limit of one connection.
pub(crate) struct LogLimit {
    /// The upper half is the number of the current window, and the lower half has the counts of
    /// messages by kind.
    state: Atomic<u64>,
    logs: bool,
}

impl LogLimit {
    /// Creates the limit of a connection that `logs`, or of one that does not.
    pub(crate) const fn new(logs: bool) -> Self {
        Self {
            state: Atomic::new(0),
            logs,
        }
    }

    /// Returns `true` if both this limit and that of the module permit a message of this kind now.
    /// The message counts. If two CPUs log at the same time, only one of the messages may count.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn may_print(&self, about: About) -> bool {
        if !self.logs {
            return false;
        }
        let next = counted(self.state.load(Relaxed), time::monotonic_ns(), about);
        if let Some(next) = next {
            self.state.store(next, Relaxed);
        }
        next.is_some() && may_print(about)
    }
}

/// Returns the state of a limit after one more message. `None` if the message is not permitted.
pub(crate) fn counted(state: u64, now: u64, about: About) -> Option<u64> {
    let window = now.wrapping_div(WINDOW_NS) << u32::BITS;
    let counts = match state & !COUNTS == window {
        true => state & COUNTS,
        false => 0,
    };
    let shift = COUNT_BITS.wrapping_mul(about as u32);
    let count = counts >> shift & 0xff;
    (count < PER_WINDOW).then_some(window | counts.wrapping_add(1 << shift))
}

/// `pr_warn!` of kind [`About::Failure`], at most 40 messages in five seconds for the whole module.
/// With a [`LogLimit`] as the first argument at most ten for its connection.
macro_rules! pr_warn_ratelimited {
    ($($limit:ident).+, $($arg:tt)*) => {
        if $($limit).+.may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Failure`]. It shares the limit of `pr_warn_ratelimited!`.
macro_rules! pr_info_ratelimited {
    ($($limit:ident).+, $($arg:tt)*) => {
        if $($limit).+.may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_info!($($arg)*);
        }
    };
    ($($arg:tt)*) => {
        if $crate::kapi::print::may_print($crate::kapi::print::About::Failure) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

/// `pr_info!` of kind [`About::Change`], at most 40 messages in five seconds for the whole module,
/// and ten for the connection of the [`LogLimit`].
macro_rules! pr_change_ratelimited {
    ($($limit:ident).+, $($arg:tt)*) => {
        if $($limit).+.may_print($crate::kapi::print::About::Change) {
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
    pr_attempt_ratelimited,
    pr_change_ratelimited,
    pr_info_ratelimited,
    pr_program_ratelimited,
    pr_warn_ratelimited, //
};
