// SPDX-License-Identifier: GPL-2.0

//! Connections to other nodes: their queues, states and workers, and the interface of transports.

#![deny(unsafe_code)]

mod acked;
mod cancel;
mod cong_work;
mod connection;
mod credits;
mod debugfs;
mod event_mask;
mod fault_limiter;
mod for_peer;
mod idle;
mod info;
mod keepalive;
mod key;
mod multipath;
mod negotiation;
mod node;
mod path;
mod path_set;
mod pong;
mod positions;
mod quota;
mod receive;
mod recv_frame;
mod recv_reserve;
mod recv_side;
mod request;
mod retry_timers;
mod retry_work;
mod send;
mod send_token;
mod socket_budget;
mod table;
mod table_user;
mod transport;
mod transports;
mod tunables;
mod tx_lock;
mod tx_queue;
mod upper;
mod violation;
mod worker;
pub(crate) mod xmit;

pub(crate) use connection::Connection;
pub(crate) use debugfs::Views;
pub(crate) use key::{
    AsIs,
    ConnKey,
    ShownAddr, //
};
pub(crate) use node::{
    NoConnection,
    Node,
    Nodes, //
};
pub(crate) use path::Path;
#[cfg(rds_kunit)]
pub(crate) use positions::{
    PositionPlace,
    Positions, //
};
pub(crate) use quota::{
    ConnQuota,
    NodeLimits, //
};
pub(crate) use receive::ReceiveError;
pub(crate) use recv_frame::{
    RecvFrame,
    LEAST_IN_PACKET, //
};
pub(crate) use retry_timers::RetryTimers;
pub(crate) use socket_budget::{
    SocketBudget,
    SocketSlot, //
};
pub(crate) use table::Bounds;
#[cfg(rds_kunit)]
pub(crate) use table::{
    AttemptGroup,
    ConnTable,
    Full,
    TableSlot, //
};
pub(crate) use transport::{
    Endpoint,
    EndpointEvent,
    EndpointProgress,
    Link,
    NextStep,
    Request,
    Transport, //
};
pub(crate) use transports::Transports;
pub(crate) use tunables::Tunables;
pub(crate) use tx_queue::{
    QueueKind,
    TxQueue, //
};
