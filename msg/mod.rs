// SPDX-License-Identifier: GPL-2.0

//! Messages, and the sockets that send and receive them.

#![deny(unsafe_code)]

mod cong_notify;
mod incoming;
mod memory;
mod message;
mod msg_meta;
mod notify_queue;
mod operation;
mod overrun;
mod pong_budget;
mod reader_lock;
mod send_room;
mod shared_room;
mod sndbuf_charge;
mod socket;
mod stamps;
mod unread;
mod waiting;

pub(crate) use incoming::{Incoming, Payload, CHUNK, INLINE};
#[cfg(rds_kunit)]
pub(crate) use memory::Memory;
pub(crate) use memory::{Ending, RegionKey};
pub(crate) use message::{FrameError, Message, MsgOps};
pub(crate) use msg_meta::MsgMeta;
pub(crate) use operation::{
    CompletionNotifier, FollowUp, Op, OpStatus, Owner, Posted, RdmaOp, Wanted,
};
pub(crate) use pong_budget::{PongBudget, PongSlot};
pub(crate) use shared_room::SharedRoom;
pub(crate) use sndbuf_charge::{NoTicket, SndbufCharge};
pub(crate) use socket::{Bound, CachedRoute, Keep, Peer, Socket, TransportId};
pub(crate) use stamps::{BadTraces, Stamps, Traces};
pub(crate) use waiting::WaitingOn;
