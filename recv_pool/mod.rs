// SPDX-License-Identifier: GPL-2.0

//! DMA buffer pools for received and sent messages: see [`Pool`].

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
    Limits,
    Pools,
    Unmapped, //
};
