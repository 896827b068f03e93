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

pub(crate) use beside::Beside;
pub(crate) use incoming::{Incoming, Payload, CHUNK, INLINE};
#[cfg(rds_kunit)]
pub(crate) use memory::Memory;
pub(crate) use memory::{Ending, RegionKey};
pub(crate) use message::{Attached, Message};
pub(crate) use operation::{Attachment, Behind, Op, Outcome, Owner, Posted, Told, Wanted};
pub(crate) use pongs::{Pong, Pongs};
pub(crate) use shared_room::SharedRoom;
pub(crate) use socket::{Bound, Keep, Peer, Socket, TransportId, Way};
pub(crate) use stamps::{BadTraces, Stamps, Traces};
pub(crate) use ticket::{NoTicket, Ticket};
pub(crate) use waiting::WaitingOn;
