// SPDX-License-Identifier: GPL-2.0

//! `kapi::rdma`: buffers and rings are those of the module. Devices and their objects are
//! stand-ins.

#[path = "../../../../../kapi/rdma/arena.rs"]
mod arena;
#[path = "../../../../../kapi/rdma/arena_stats.rs"]
mod arena_stats;
mod arena_tests;
#[path = "../../../../../kapi/rdma/batch.rs"]
mod batch;
#[path = "../../../../../kapi/rdma/bounce.rs"]
mod bounce;
#[path = "../../../../../kapi/rdma/bounce_bounds.rs"]
mod bounce_bounds;
#[path = "../../../../../kapi/rdma/buf.rs"]
mod buf;
mod device;
#[path = "../../../../../kapi/rdma/domain.rs"]
mod domain;
mod mapping;
#[path = "../../../../../kapi/rdma/operation.rs"]
mod operation;
mod pd;
#[path = "../../../../../kapi/rdma/qp_ring.rs"]
mod qp_ring;
mod ring_tests;
#[path = "../../../../../kapi/rdma/send_item.rs"]
mod send_item;
#[path = "../../../../../kapi/rdma/send_ring.rs"]
mod send_ring;
#[path = "../../../../../kapi/rdma/shard.rs"]
mod shard;
#[path = "../../../../../kapi/rdma/shard_mapping.rs"]
mod shard_mapping;
#[path = "../../../../../kapi/rdma/wc_status.rs"]
mod wc_status;

pub(crate) use arena::{Arena, GrowError};
pub(crate) use arena_stats::ArenaStats;
pub(crate) use batch::Batch;
pub(crate) use bounce_bounds::BounceBounds;
pub(crate) use buf::{Buf, BufMut};
pub(crate) use pd::Pd;
