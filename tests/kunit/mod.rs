// SPDX-License-Identifier: GPL-2.0

//! KUnit suites, which run when the module is loaded.

mod acked;
mod alloc;
mod arenas;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_RDMA))]
mod atomics;
#[cfg(CONFIG_RDS_RUST_RDMA)]
mod cm_event;
mod cong_bits;
mod cong_map;
mod conn_table;
mod connect;
mod connection;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_RDMA))]
mod dma;
mod exthdr;
mod fifo;
mod gate;
mod ib_private;
mod idle_paths;
#[cfg(CONFIG_RDS_RUST_RDMA)]
mod laddr;
mod mprds;
mod packed;
mod paths;
mod paths_to_c;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_RDMA))]
mod pool_dma;
mod pool_sizes;
mod print;
mod push;
mod quota;
#[cfg(CONFIG_RDS_RUST_RDMA)]
mod rdma;
mod recv_pool;
mod retry_timers;
mod rx;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_TCP))]
mod tcp;
mod tcp_bench;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_TCP))]
mod tcp_ends;
#[cfg(CONFIG_RDS_RUST_TCP)]
mod tcp_limits;
#[cfg(all(rds_kunit_iommu, CONFIG_RDS_RUST_TCP))]
mod tcp_reader;
pub(crate) mod transport;
mod transports;
mod tx;
#[path = "../vectors.rs"]
mod vectors;
pub(crate) mod wait;
mod waiters;
mod wire;
