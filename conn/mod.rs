// SPDX-License-Identifier: GPL-2.0

//! What the sockets of this node share: who is bound where, the connections to other nodes, and
//! the counters.

#![deny(unsafe_code)]

mod binds;
mod node;
mod stats;

pub(crate) use binds::Binds;
pub(crate) use node::Node;
pub(crate) use stats::{Counter, Stats};
