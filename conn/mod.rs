// SPDX-License-Identifier: GPL-2.0

//! What the sockets of this node share: who is bound where, the connections to other nodes, and
//! the counters.

#![deny(unsafe_code)]

mod accounts;
mod acked;
mod binds;
mod cancel;
mod connection;
mod credits;
mod debugfs;
mod flag;
mod idle;
mod info;
mod key;
mod node;
mod offenders;
mod receive;
mod silence;
mod stats;
mod table;
mod transport;
mod tunables;
mod turns;
mod worker;

pub(crate) use accounts::{Account, Holder};
pub(crate) use binds::{BindError, Binds, Key as BindKey, FIRST_PORT};
pub(crate) use connection::{Connection, TxQueue};
pub(crate) use debugfs::Views;
pub(crate) use info::Outbox;
pub(crate) use key::{AsIs, ConnKey, Shown};
pub(crate) use node::{NoConnection, Node};
pub(crate) use stats::{Counter, Stats};
pub(crate) use table::Bounds;
#[cfg(rds_kunit)]
pub(crate) use table::{Full, Place, PositionPlace, Positions, Table};
pub(crate) use transport::{
    Endpoint, Home, Link, LocalMemory, Mapped, Needs, Progress, Reached, Released, RemoteMemory,
    Request, Transport,
};
pub(crate) use tunables::Tunables;
pub(crate) use turns::Turns;
