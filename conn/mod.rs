// SPDX-License-Identifier: GPL-2.0

//! Connections to other nodes: their queues, states and workers, and the interface of transports.
//!
//! # Files
//!
//! A file imports only files above it in this list. The exceptions are the five of the core. A
//! connection has its node and a path. The node has the connections and the transports. A path has
//! a link, and transports and links take the node or the connection.
//!
//! | File | Content |
//! |---|---|
//! | `event_mask` | Set of events that any context reports to a work item |
//! | `key` | Key of a connection, and the text forms of its addresses |
//! | `tunables` | The settings |
//! | `table_user`, `table` | Table of a node's connections, and its limits |
//! | `positions` | Receive positions of connections that were forgotten |
//! | `socket_budget`, `quota` | Limits that nodes share |
//! | `fault_limiter`, `retry_timers` | Delays of operations, and sockets that wait |
//! | `send_token`, `tx_lock` | Lock of the send side, and the messages queued meanwhile |
//! | `tx_queue` | Queues of messages, and the state that decides what is sent next |
//! | `violation` | Rules that a peer can violate |
//! | `recv_frame`, `recv_reserve` | Frames as transports pass them, memory for one message |
//! | `negotiation` | Negotiation of the paths over TCP |
//! | `recv_side` | Sequence numbers of the peer, and a message that has arrived in part |
//! | `path_set` | The other paths of a connection over TCP, and those of its ports |
//! | `transport`, `transports` | Core: interface of transports, choice between them |
//! | `path`, `connection`, `node` | Core: path, connection and node |
//!
//! The other files give types of the core more methods, which call each other:
//!
//! | File | Content |
//! |---|---|
//! | `send`, `xmit` | Messages that are queued, and the frames that carry them |
//! | `acked`, `cancel` | Messages that leave the queues: acknowledged, cancelled |
//! | `receive` | Frames of the peer, and the messages for sockets |
//! | `pong`, `credits` | Answers to pings; flow control |
//! | `request`, `worker` | Requests of the peer, and the events that connect and disconnect |
//! | `multipath` | Several paths over TCP |
//! | `idle`, `keepalive`, `for_peer` | Periodic checks, and connections that only a peer may need |
//! | `cong_work`, `retry_work` | Work of the node: congestion maps, waiting sockets |
//! | `info`, `debugfs` | Tables of information, files for people |
//! | `upper` | Node and connection, as sockets use them |

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
