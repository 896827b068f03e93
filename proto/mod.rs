// SPDX-License-Identifier: GPL-2.0

//! The RDS protocol without any I/O.
//!
//! Callers pass in what has arrived, and the functions return what to do about it. Nothing here
//! takes a lock, reads a clock, allocates or knows a kernel object. Time and randomness are
//! arguments. The same files are compiled into the module and, by `tests/host`, for the build host,
//! where the property tests and the two-node simulation run.
//!
//! Errors: all code here has to withstand numbers chosen by a hostile peer. So parsers and state
//! machines return an error that names the broken rule, and nothing panics.
//!
//! Context: any. The types are plain data, and callers serialise access to them.

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub(crate) mod attempts;
pub(crate) mod bounce;
pub(crate) mod completion_watchdog;
pub(crate) mod cong_bits;
pub(crate) mod cong_pace;
pub(crate) mod connect;
pub(crate) mod credits;
pub(crate) mod exthdr;
pub(crate) mod faults;
pub(crate) mod ib_private;
pub(crate) mod idle;
pub(crate) mod info;
pub(crate) mod keepalive;
pub(crate) mod keyed;
pub(crate) mod map_order;
pub(crate) mod mprds;
pub(crate) mod packed;
pub(crate) mod path_choice;
pub(crate) mod path_history;
pub(crate) mod rcvbuf;
pub(crate) mod rdma;
pub(crate) mod recv_depth;
pub(crate) mod resolve;
pub(crate) mod rx;
pub(crate) mod stall;
pub(crate) mod starvation;
pub(crate) mod tcp_marks;
pub(crate) mod tcp_role;
pub(crate) mod tcp_stream;
pub(crate) mod tcp_watch;
pub(crate) mod tx;
mod unchanged;
pub(crate) mod wire;
pub(crate) mod xmit;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
