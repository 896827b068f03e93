// SPDX-License-Identifier: GPL-2.0

//! KUnit suites, which run when the module is loaded.

mod acked;
mod alloc;
mod arenas;
#[cfg(rds_kunit_iommu)]
mod atomics;
mod cm_event;
mod cong_bits;
mod cong_map;
mod conn_table;
mod connect;
mod connection;
#[cfg(rds_kunit_iommu)]
mod dma;
mod exthdr;
mod fifo;
mod gate;
mod ib_private;
mod idle_paths;
mod laddr;
mod mprds;
mod packed;
mod paths;
mod paths_to_c;
#[cfg(rds_kunit_iommu)]
mod pool_dma;
mod pool_sizes;
mod print;
mod push;
mod quota;
mod rdma;
mod recv_pool;
mod retry_timers;
mod rx;
#[cfg(rds_kunit_iommu)]
mod tcp;
mod tcp_bench;
mod tcp_limits;
pub(crate) mod transport;
mod transports;
mod tx;
#[path = "../vectors.rs"]
mod vectors;
pub(crate) mod wait;
mod waiters;
mod wire;
