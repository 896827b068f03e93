// SPDX-License-Identifier: GPL-2.0

//! Host tests of the protocol core in `proto/`: unit tests, property tests and a simulation of two
//! nodes. The records for programs in `uapi/` are tested here, too, as are other files that need
//! only `core`. `cargo test` in this folder runs the tests; `make test-miri` does so under Miri, in
//! a few minutes.

#![cfg(test)]

#[path = "../../../proto/mod.rs"]
mod proto;
#[path = "../../../uapi/mod.rs"]
mod uapi;
#[path = "../../vectors.rs"]
mod vectors;

mod attempts;
mod bounce;
mod bounce_bounds;
mod completion_watchdog;
mod cong_bits;
mod cong_pace;
mod connect;
mod connections_md;
mod credits;
mod exthdr;
mod faults;
mod ib_private;
mod idle;
mod info;
mod keepalive;
mod keyed;
mod laddr_pace;
mod laddr_table;
mod map_order;
mod mprds;
mod mprds_nodes;
mod packed;
mod path_choice;
mod path_history;
mod rdma;
mod recv_depth;
mod resolve;
mod restarts;
mod rx;
mod sim;
mod stall;
mod starvation;
mod tcp;
mod tcp_watch;
mod tx;
mod versions;
mod wire;
mod xmit;
