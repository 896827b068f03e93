// SPDX-License-Identifier: GPL-2.0

//! Messages and the sockets that they come from and go to.

#![deny(unsafe_code)]

mod beside;
mod incoming;
mod memory;
mod message;
mod news;
mod notices;
mod operation;
mod overrun;
mod pongs;
mod send_room;
mod shared_room;
mod socket;
mod stamps;
mod ticket;
mod turn;
mod unread;
mod waiting;

pub(crate) use beside::MsgMeta;
pub(crate) use incoming::{Incoming, Payload, CHUNK, INLINE};
#[cfg(rds_kunit)]
pub(crate) use memory::Memory;
pub(crate) use memory::{Ending, RegionKey};
pub(crate) use message::{Message, MsgOps};
pub(crate) use operation::{
    CompletionNotifier, FollowUp, Op, OpStatus, Owner, Posted, RdmaOp, Wanted,
};
pub(crate) use pongs::{PongBudget, PongSlot};
pub(crate) use shared_room::SharedRoom;
pub(crate) use socket::{Bound, CachedRoute, Keep, Peer, Socket, TransportId};
pub(crate) use stamps::{BadTraces, Stamps, Traces};
pub(crate) use ticket::{NoTicket, SndbufCharge};
pub(crate) use waiting::WaitingOn;
