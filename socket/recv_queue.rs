// SPDX-License-Identifier: GPL-2.0

//! Queue of the messages that a socket has not read, with their memory. `receive.rs` has the
//! operations on it.

use super::Incoming;
use crate::{
    kapi::sync::Fifo,
    proto::rcvbuf::Charges, //
};
use core::net::Ipv6Addr;

/// Messages that wait to be read.
pub(super) struct RecvQueue {
    pub(super) messages: Fifo<Incoming>,
    /// First message, while a reader peeks at it and will put it back.
    pub(super) peeked: Option<UnreadInfo>,
    /// Memory of the messages, in bytes.
    pub(super) bytes: usize,
    /// Part of `bytes` that is charged to the user.
    pub(super) charges: Charges,
    pub(super) congested: bool,
    pub(super) closed: bool,
}

impl RecvQueue {
    pub(super) const fn new() -> Self {
        Self {
            messages: Fifo::new(),
            peeked: None,
            bytes: 0,
            charges: Charges::new(),
            congested: false,
            closed: false,
        }
    }
}

/// Snapshot of an unread message.
#[derive(Clone, Copy)]
pub(crate) struct UnreadInfo {
    pub(crate) sequence: u64,
    pub(crate) len: u32,
    pub(crate) saddr: Ipv6Addr,
    pub(crate) sport: u16,
    pub(crate) tos: u8,
}

impl UnreadInfo {
    pub(super) fn of(message: &Incoming) -> Self {
        Self {
            sequence: message.sequence,
            len: message.len,
            saddr: message.saddr,
            sport: message.sport,
            tos: message.tos,
        }
    }
}
