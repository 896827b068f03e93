// SPDX-License-Identifier: GPL-2.0

//! Sockets: a protocol family with its sockets, messages and addresses.

mod addr;
mod family;
mod msghdr;
mod netns;
mod sock;
pub(crate) mod user_byte;

pub(crate) use addr::{SockAddr, SockAddrError};
pub(crate) use family::{Protocol, Registration};
pub(crate) use msghdr::{flags as msg_flags, RecvMsg, SendMsg};
pub(crate) use netns::Net;
pub(crate) use sock::{poll, PollMask, Sock, SockOptIn, SockOptOut, Timeout};
