// SPDX-License-Identifier: GPL-2.0

//! Congestion control: full local ports and full ports of peers.
//!
//! A socket with a slow reader marks its port in the map of its address. The map is sent to every
//! peer with a connection to the address, and senders there hold back. The map is advisory:
//! messages in flight are delivered all the same.

#![deny(unsafe_code)]

mod local;
mod remote;
mod room;

pub(crate) use local::{
    MapKey,
    NextRound,
    Registry, //
};
pub(crate) use remote::Remote;
pub(crate) use room::{
    MapCount,
    MapRoom, //
};
