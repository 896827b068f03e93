// SPDX-License-Identifier: GPL-2.0

//! The pools of one device.

use super::{BufMut, Context, Pool, PoolConfig, SHARD_ORDERS};
use crate::kapi::rdma::Pd;
use crate::proto::wire::{Header, FRAGMENT};
use kernel::{prelude::*, sync::Arc};

/// A buffer for a whole fragment: as large as lets fifteen into a shard of 64 KiB.
const LARGE: u32 = 4352;
/// A buffer for a header and a short payload.
const SMALL: u32 = 256;

/// The most that each pool of a device may take, in bytes.
const MAX_BYTES: usize = 1 << 30;

const _: () =
    assert!(LARGE as usize >= Header::LEN + FRAGMENT as usize && (64 << 10) / LARGE == 15);

/// The pools of one device: one for what arrives, and two sizes for what is sent.
pub(crate) struct Pools {
    pub(crate) recv: Arc<Pool>,
    small: Arc<Pool>,
    large: Arc<Pool>,
}

impl Pools {
    /// Empty pools for the queue pairs of `pd`. May sleep.
    pub(crate) fn new(pd: &Pd) -> Result<Arc<Self>> {
        let pool = |buf_size| {
            let config = PoolConfig {
                buf_size,
                max_bytes: MAX_BYTES,
                orders: SHARD_ORDERS,
            };
            Pool::new(Some(pd), config)
        };
        Ok(Arc::new(
            Self {
                recv: pool(LARGE)?,
                small: pool(SMALL)?,
                large: pool(LARGE)?,
            },
            GFP_KERNEL,
        )?)
    }

    /// A buffer for a header and `len` bytes of payload behind it. Fails with ENOBUFS.
    pub(crate) fn alloc_send(&self, len: u32, context: Context) -> Result<BufMut> {
        let pool = if len <= SMALL - Header::LEN as u32 {
            &self.small
        } else {
            &self.large
        };
        pool.alloc(context)
            .ok_or_else(|| crate::kapi::errno::Errno::NoBufferSpace.into())
    }

    /// Ends the pools' use before their device goes. No queue pair of the device is left. May
    /// sleep.
    pub(crate) fn revoke(&self) -> Result {
        [&self.recv, &self.small, &self.large]
            .map(|pool| pool.revoke())
            .into_iter()
            .collect()
    }
}
