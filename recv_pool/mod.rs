// SPDX-License-Identifier: GPL-2.0

//! Pools of buffers that receive and send frames, with a DMA mapping if they belong to a device.
//!
//! [`Pool`] is the policy of one pool, and [`Pools`] has all pools of a device. The handles of
//! buffers come from `kapi/rdma`. Upper layers use them from here.

#![deny(unsafe_code)]

mod counters;
mod limit;
mod pool;
mod pools;

pub(crate) use crate::kapi::rdma::{
    Batch,
    Buf,
    BufMut,
    GrowError, //
};
pub(crate) use counters::{
    Counters,
    PoolUsage, //
};
pub(crate) use limit::{
    Limit,
    LoweredLimit, //
};
pub(crate) use pool::{
    Context,
    Pool,
    PoolConfig,
    SHARD_ORDERS, //
};
pub(crate) use pools::{
    FrameBuf,
    PoolShared,
    Pools,
    Unmapped, //
};
