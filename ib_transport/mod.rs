// SPDX-License-Identifier: GPL-2.0

//! RDS over reliable connected queue pairs: InfiniBand, RoCE and iWARP.
//!
//! # Operation
//!
//! A connection has one endpoint: a CM id, a queue pair and the buffers that are posted to it. A
//! message is sent as fragments of the agreed size, each behind a header of its own. A fragment is
//! one work request with one scatter/gather entry. Its header and payload are adjacent in a buffer
//! of the device's pool, which stays DMA-mapped while the pool owns it. Frames arrive in such
//! buffers, too, and the reader copies from them.
//!
//! # Ownership
//!
//! The connection's worker owns the endpoint; dropping it there takes everything down in order. A
//! posted buffer belongs to the queue pair until it completes. A message belongs to its connection
//! until the peer has acknowledged it.
//!
//! # Errors
//!
//! A failed completion, a CM event or a device removal marks the endpoint as lost. The worker then
//! drops it, and unacknowledged messages are sent again by the next endpoint.
//!
//! # Context
//!
//! Completions run in softirq and take `Path::tx`. The CM calls its handlers in
//! process context; they record the event and wake the worker.
//!
//! # Files
//!
//! A file uses only files and folders above it in this list:
//!
//! | File | Content |
//! |---|---|
//! | `private` | Addresses and private data in the form of the CM |
//! | `tunables` | The settings |
//! | `endpoint_shared` | State of an endpoint that the CM's handler and the worker share |
//! | `endpoint_list` | The endpoints of a device, and the interface of their queue pairs to it |
//! | `quirks/` | Code that only one driver needs; may be skipped |
//! | `mr/` | Registered memory: `entry`, `free_list`, `reg_qp`, `pool_inner`, `pool` |
//! | `cq_watchdog` | Periodic check for missing completions |
//! | `device` | A device: its pools, its registered memory, and the checks of its endpoints |
//! | `recv_ring` | Depth of a receive ring |
//! | `qp_context` | State of an endpoint that completions use |
//! | `ring_service` | Refill of receive rings |
//! | `transmit` | The link of an endpoint: takes the frames that `conn/xmit.rs` builds |
//! | `completions` | Handlers of completions and events of a queue pair |
//! | `ib` | The devices of the transport, and the transport of a network namespace |
//! | `netns` | Service of other network namespaces than the initial one |
//! | `endpoint` | An attempt to connect, and the connection that it becomes |
//! | `transport` | Interface to connections and sockets |
//! | `client` | Devices that come and go |
//! | `rdma` | The whole as a part of the module |

#![deny(unsafe_code)]

mod client;
mod completions;
mod cq_watchdog;
mod device;
mod endpoint;
mod endpoint_list;
mod endpoint_shared;
mod ib;
#[cfg(rds_kunit)]
#[path = "../tests/kunit/ib_transport/mod.rs"]
mod kunit;
pub(crate) mod mr;
mod netns;
mod private;
mod qp_context;
mod quirks;
mod rdma;
mod recv_ring;
mod ring_service;
mod transmit;
mod transport;
mod tunables;

pub(crate) use rdma::{
    Rdma,
    RdmaDevices,
    RdmaFiles,
    RdmaListeners,
    RdmaService, //
};
pub(crate) use tunables::IbTunables;
