// SPDX-License-Identifier: GPL-2.0

//! Messages and the sockets that they come from and go to.

#![deny(unsafe_code)]

mod incoming;
mod socket;
mod ticket;

pub(crate) use incoming::{Incoming, Payload};
pub(crate) use socket::{Bound, Socket, TransportId};
pub(crate) use ticket::Ticket;
