// SPDX-License-Identifier: GPL-2.0

//! Buffers for messages: see [`Pool`].

#![deny(unsafe_code)]

mod pool;

pub(crate) use pool::{Context, Pool, PoolConfig, PoolStats, SHARD_ORDERS};
