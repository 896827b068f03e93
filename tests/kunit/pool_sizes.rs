// SPDX-License-Identifier: GPL-2.0

//! Sizes of buffers and shards in suites about pools.

/// Header and fragment: 15 of them fit into a shard.
pub(crate) const SIZE: u32 = 4352;
pub(crate) const SHARD: usize = 65536;
pub(crate) const SLOTS: usize = 15;
