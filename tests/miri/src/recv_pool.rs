// SPDX-License-Identifier: GPL-2.0

//! `recv_pool`, except the part that divides memory among devices.

#[path = "../../../recv_pool/counters.rs"]
mod counters;
#[path = "../../../recv_pool/limit.rs"]
mod limit;
#[path = "../../../recv_pool/pool.rs"]
mod pool;

pub(crate) use crate::kapi::rdma::{Batch, Buf, BufMut, GrowError};
pub(crate) use counters::{Counters, PoolUsage};
pub(crate) use limit::Limit;
pub(crate) use pool::{Context, Pool, PoolConfig, SHARD_ORDERS};
