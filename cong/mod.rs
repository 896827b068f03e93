// SPDX-License-Identifier: GPL-2.0

//! Congestion: the ports of this node that are full, those of the peers, and who waits for one.
//!
//! A socket whose reader is slow marks its port in the map of its address; the map goes to every
//! peer that has a connection to the address, and their senders hold back. The map is advisory:
//! what is under way is delivered all the same.

#![deny(unsafe_code)]

mod local;
mod remote;
mod waiters;

pub(crate) use local::{Place, Registry};
pub(crate) use remote::Remote;
pub(crate) use waiters::Waiters;
