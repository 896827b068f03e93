// SPDX-License-Identifier: GPL-2.0

//! RDS over TCP, in each network namespace.
//!
//! # Operation
//!
//! A connection has one endpoint: a TCP socket, and the frames that wait for it. A message is one
//! header and its payload in the stream, see `proto/tcp_stream.rs`. The node with the lower address
//! connects; the other one only wakes it up, see `proto/tcp_role.rs`. An accepted socket becomes
//! the request of its connection when its first header has arrived.
//!
//! The callback for bytes that have arrived receives them. Otherwise, and for all other events, the
//! work of the socket runs. It receives, sends and looks for acknowledgements, as far as it can
//! without waiting.
//!
//! # Ownership
//!
//! The connection's worker owns the endpoint, and the endpoint its socket. A frame belongs to the
//! endpoint until TCP has taken its bytes. A message belongs to its connection until a peer of this
//! module has acknowledged it, or the TCP of any other peer.
//!
//! # Errors
//!
//! The end of the socket, or a frame that breaks a rule, marks the endpoint as lost. The worker
//! then drops it: what the local TCP has acknowledged is received before that, because C RDS counts
//! it as delivered. Without memory for a message nothing more is read, and TCP makes the peer wait.
//! A connection that keeps an incomplete message meanwhile is given up after a while. Without
//! memory for what is sent, the work tries again later.
//!
//! # Files
//!
//! A file uses only files above it in this list:
//!
//! | File | Content |
//! |---|---|
//! | `counters` | The counters |
//! | `tunables` | Settings below `/proc/sys` |
//! | `partial` | Limit on the buffers of incomplete messages |
//! | `window` | Bytes that are read ahead of their use |
//! | `reader` | Frames from the stream |
//! | `read_side` | Place of the reader, which events and the work share |
//! | `stage` | Frames that wait for the socket |
//! | `writer` | Frames to the stream, and what TCP has acknowledged of them |
//! | `tcp` | The state that all endpoints share |
//! | `context` | The socket of an endpoint, and its work |
//! | `arrivals` | Receiving from the socket |
//! | `teardown` | End of the use of a socket |
//! | `link` | The link of an endpoint |
//! | `endpoint` | An attempt to connect, and the connection that it becomes |
//! | `transport` | Interface to connections and sockets |
//! | `listener` | Connections that peers make |

#![deny(unsafe_code)]

mod arrivals;
mod context;
mod counters;
mod endpoint;
mod link;
mod listener;
mod partial;
mod read_side;
mod reader;
mod stage;
mod tcp;
mod teardown;
mod transport;
mod tunables;
mod window;
mod writer;

pub(crate) use listener::TcpListener;
pub(crate) use tcp::{
    Tcp,
    TcpShared, //
};
pub(crate) use tunables::TcpTunables;
#[cfg(rds_kunit)]
pub(crate) use {
    counters::TcpCounters,
    endpoint::{
        IncomingStream,
        TcpEndpoint, //
    },
    partial::{
        PartialBudget,
        PartialLimit, //
    },
    reader::{
        ReadMemory,
        Reader, //
    },
    window::ReadStop, //
};
