// SPDX-License-Identifier: GPL-2.0

//! The pools of one device.

use super::{BufMut, Context, Counters, Holdings, Pool, PoolConfig, SHARD_ORDERS};
use crate::kapi::{rdma::Pd, shrinker::Cache, sync::OwnedQueue};
use crate::proto::wire::{Header, FRAGMENT};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// A buffer for a whole fragment: as large as lets fifteen into a shard of 64 KiB.
const LARGE: u32 = 4352;
/// A buffer for a header and a short payload.
const SMALL: u32 = 256;

const _: () =
    assert!(LARGE as usize >= Header::LEN + FRAGMENT as usize && (64 << 10) / LARGE == 15);

/// What all pools of a node have in common.
#[derive(Clone)]
pub(crate) struct Limits {
    /// The most that one pool may take, in bytes.
    pub(crate) max_bytes: usize,
    pub(crate) counters: Arc<Counters>,
    /// Where memory that is not needed is looked for.
    pub(crate) queue: Arc<OwnedQueue>,
}

/// The pools of one device: one for what arrives, and two sizes for what is sent.
pub(crate) struct Pools {
    pub(crate) recv: Arc<Pool>,
    small: Arc<Pool>,
    large: Arc<Pool>,
    counters: Arc<Counters>,
}

impl Pools {
    /// Empty pools for the queue pairs of `pd`. May sleep.
    pub(crate) fn new(pd: &Pd, limits: &Limits) -> Result<Arc<Self>> {
        let pool = |buf_size| {
            let config = PoolConfig {
                buf_size,
                max_bytes: limits.max_bytes,
                orders: SHARD_ORDERS,
            };
            let queue = Some(limits.queue.clone());
            Pool::new(Some(pd), queue, limits.counters.clone(), config)
        };
        Ok(Arc::new(
            Self {
                recv: pool(LARGE)?,
                small: pool(SMALL)?,
                large: pool(LARGE)?,
                counters: limits.counters.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    fn all(&self) -> [&Arc<Pool>; 3] {
        [&self.recv, &self.small, &self.large]
    }

    /// A buffer for a header and `len` bytes of payload behind it. Fails with ENOMEM, also if the
    /// pool is at its limit.
    pub(crate) fn alloc_send(&self, len: u32, context: Context) -> Result<BufMut> {
        let pool = if len <= SMALL - Header::LEN as u32 {
            &self.small
        } else {
            &self.large
        };
        pool.alloc(context).ok_or(ENOMEM)
    }

    /// Adds what the pools hold. Any context but a hard interrupt.
    pub(crate) fn add_to(&self, holdings: &mut Holdings) {
        self.all().iter().for_each(|pool| holdings.add(pool));
    }

    /// Ends the pools' use before their device goes. No queue pair of the device is left. Sleeps.
    pub(crate) fn revoke(&self) -> Result {
        self.all().map(|pool| pool.revoke()).into_iter().collect()
    }
}

impl Cache for Pools {
    const NAME: &'static CStr = c"rds_pools";
    const BATCH: usize = (64 << 10) / PAGE_SIZE;

    fn count(&self) -> usize {
        self.all()
            .map(|pool| pool.trimmable())
            .iter()
            .sum::<usize>()
            / PAGE_SIZE
    }

    fn shrink(&self, pages: usize) -> usize {
        let want = pages.saturating_mul(PAGE_SIZE);
        let mut freed = 0usize;
        for pool in self.all() {
            freed = freed.saturating_add(pool.trim(want.saturating_sub(freed)));
        }
        self.counters.shrunk.fetch_add(freed as u64, Relaxed);
        freed / PAGE_SIZE
    }
}
