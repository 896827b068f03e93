// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Safe access to AF_RDS sockets: reliable datagrams in order, over RDMA, TCP or loopback.
//!
#![doc = include_str!("../README.md")]

mod addr;
mod control;
mod error;
pub mod info;
mod memory;
mod notices;
mod options;
mod poll;
mod rdma;
mod reset;
mod socket;

pub use error::{is_congested, Error};
pub use memory::{Area, Memory};
pub use notices::{Ended, Notices, Ports, Span, Status};
pub use options::Transport;
pub use poll::{poll, Events, PollFd};
pub use rdma::{Atomic, Control, Cookie, Direction, Lifetime};
pub use socket::{RdsSocket, Received, Sent};

/// Address family of RDS sockets.
pub const AF_RDS: i32 = 21;

/// Level of the RDS socket options and control messages.
pub const SOL_RDS: i32 = 276;

/// Largest payload of one message, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// Largest number of bytes that one RDMA operation moves.
pub const MAX_TRANSFER: usize = 1 << 20;

/// Port of pings: the kernel answers a message to it with an empty message from it.
pub const PING_PORT: u16 = 0;
