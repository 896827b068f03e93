// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Safe access to AF_RDS sockets: reliable, in-order datagrams over RDMA, TCP or loopback.
//!
//! [`RdsSocket`] is always non-blocking; wait with [`poll`]. How a program waits depends on why a
//! send failed: after `EAGAIN` (its own send buffer is full) for [`PollFd::WRITABLE`], after
//! `ENOBUFS` (the destination is congested) for [`PollFd::READABLE`] or [`PollFd::UNCONGESTED`],
//! because a congested destination does not make the socket unwritable.

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
pub use notices::{Ended, Notices, Ports, Status};
pub use options::Transport;
pub use poll::{poll, PollFd};
pub use rdma::{Control, Cookie, Direction, Lifetime};
pub use socket::{RdsSocket, Received, Sent};

/// Address family of RDS sockets.
pub const AF_RDS: i32 = 21;

/// Level of the RDS socket options and control messages.
pub const SOL_RDS: i32 = 276;

/// Largest payload of one message, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The most that one RDMA operation moves, in bytes.
pub const MAX_TRANSFER: usize = 1 << 20;

/// The kernel answers a message to this port with an empty message from this port.
pub const PING_PORT: u16 = 0;
