// SPDX-License-Identifier: GPL-2.0

//! The pools of one device.

use super::{BufMut, Context, Counters, Holdings, Limit, Pool, PoolConfig, SHARD_ORDERS};
use crate::kapi::{rdma::Pd, shrinker::Cache, sync::OwnedQueue};
use crate::proto::wire::{FragmentSize, Header};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// Buffers for a header and a payload that is shorter than any fragment, in bytes: 256, 60 and 30 of them
/// are in a shard of 64 KiB.
const SHORT: [u32; 3] = [256, 1088, 2176];

/// A buffer for a whole fragment: as large as lets so many of them into a shard of 64 KiB.
const fn buf_size(size: FragmentSize) -> u32 {
    match size {
        // 15
        FragmentSize::K4 => 4352,
        // 7
        FragmentSize::K8 => 9344,
        // 3
        FragmentSize::K16 => 21824,
    }
}

/// Which of these is for a header and `len` bytes of payload that are sent.
#[inline(always)]
fn for_sending<T>(len: u32, short: [T; SHORT.len()], large: impl FnOnce(FragmentSize) -> T) -> T {
    const fn room(size: u32) -> u32 {
        size - Header::LEN as u32
    }
    let [a, b, c] = short;
    if len <= const { room(SHORT[0]) } {
        a
    } else if len <= const { room(SHORT[1]) } {
        b
    } else if len <= const { room(SHORT[2]) } {
        c
    } else {
        large(FragmentSize::at_least(len))
    }
}

/// The page orders of shards for such buffers.
const fn orders(size: FragmentSize) -> &'static [u32] {
    match size {
        FragmentSize::K4 => SHARD_ORDERS,
        FragmentSize::K8 => &[4, 3, 2],
        FragmentSize::K16 => &[4, 3],
    }
}

/// For each size of fragments.
struct BySize<T> {
    k4: T,
    k8: T,
    k16: T,
}

impl<T> BySize<T> {
    fn try_new(mut make: impl FnMut(FragmentSize) -> Result<T>) -> Result<Self> {
        Ok(Self {
            k4: make(FragmentSize::K4)?,
            k8: make(FragmentSize::K8)?,
            k16: make(FragmentSize::K16)?,
        })
    }

    fn get(&self, size: FragmentSize) -> &T {
        match size {
            FragmentSize::K4 => &self.k4,
            FragmentSize::K8 => &self.k8,
            FragmentSize::K16 => &self.k16,
        }
    }
}

/// What all pools of a node have in common.
#[derive(Clone)]
pub(crate) struct Limits {
    /// The most that one pool may take.
    pub(crate) most: Arc<Limit>,
    pub(crate) counters: Arc<Counters>,
    /// Where memory that is not needed is looked for.
    pub(crate) queue: Arc<OwnedQueue>,
}

/// The pools of one device, for what arrives and for what is sent.
pub(crate) struct Pools {
    recv: BySize<Arc<Pool>>,
    short: [Arc<Pool>; SHORT.len()],
    large: BySize<Arc<Pool>>,
    /// Where messages to be sent go when the device has gone.
    unmapped: Option<Arc<Pools>>,
    counters: Arc<Counters>,
}

impl Pools {
    fn make(pd: Option<&Pd>, unmapped: Option<Arc<Pools>>, limits: &Limits) -> Result<Arc<Self>> {
        let pool = |buf_size, orders| {
            let config = PoolConfig { buf_size, orders };
            let (queue, most) = (limits.queue.clone(), limits.most.clone());
            Pool::new(pd, Some(queue), most, limits.counters.clone(), config)
        };
        let [a, b, c] = SHORT;
        let short = |buf_size| pool(buf_size, SHARD_ORDERS);
        Ok(Arc::new(
            Self {
                recv: BySize::try_new(|size| pool(buf_size(size), orders(size)))?,
                short: [short(a)?, short(b)?, short(c)?],
                large: BySize::try_new(|size| pool(buf_size(size), orders(size)))?,
                unmapped,
                counters: limits.counters.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Empty pools for the queue pairs of `pd`. When they are revoked, buffers for what is to be sent
    /// come from `unmapped`. May sleep.
    pub(crate) fn new(pd: &Pd, unmapped: Arc<Pools>, limits: &Limits) -> Result<Arc<Self>> {
        Self::make(Some(pd), Some(unmapped), limits)
    }

    fn all(&self) -> [&Arc<Pool>; 9] {
        let (recv, large) = (&self.recv, &self.large);
        let [a, b, c] = &self.short;
        [
            &recv.k4, &recv.k8, &recv.k16, a, b, c, &large.k4, &large.k8, &large.k16,
        ]
    }

    /// The pool that receives for fragments of `size` are posted from.
    pub(crate) fn recv(&self, size: FragmentSize) -> &Pool {
        self.recv.get(size)
    }

    fn send(&self, len: u32) -> &Pool {
        for_sending(len, self.short.each_ref().map(|pool| &**pool), |size| {
            self.large.get(size)
        })
    }

    /// The memory that [`Self::alloc_send`] takes for so much payload, in bytes.
    pub(crate) fn send_size(len: u32) -> u32 {
        for_sending(len, SHORT, buf_size)
    }

    /// A buffer for a header and `len` bytes of payload behind it. Fails with ENOMEM, also if the
    /// pool is at its limit.
    pub(crate) fn alloc_send(&self, len: u32, context: Context) -> Result<BufMut> {
        let pool = self.send(len);
        pool.alloc(context)
            .or_else(|| {
                let unmapped = self.unmapped.as_ref().filter(|_| pool.is_revoked())?;
                unmapped.send(len).alloc(context)
            })
            .ok_or(ENOMEM)
    }

    /// Whether a buffer can be posted to queue pairs of the device.
    #[inline]
    pub(crate) fn can_send(&self, buf: &BufMut) -> bool {
        self.large.k4.reaches(buf)
    }

    /// A buffer that can be posted to queue pairs of the device, with what another one has: a header
    /// and `len` bytes of payload. `None` if there is no memory. Any context but a hard interrupt.
    #[cold]
    pub(crate) fn copy(&self, other: &BufMut, len: u32) -> Option<BufMut> {
        let mut copy = self.alloc_send(len, Context::Atomic).ok()?;
        let end = Header::LEN.saturating_add(len as usize);
        let from = other.bytes().get(..end)?;
        copy.bytes_mut().get_mut(..end)?.copy_from_slice(from);
        Some(copy)
    }

    /// Adds what the pools hold. Any context but a hard interrupt.
    pub(crate) fn add_to(&self, holdings: &mut Holdings) {
        self.all().iter().for_each(|pool| holdings.add(pool));
    }

    /// The pools, with names for people.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Pool)> {
        const NAMES: [&str; 9] = [
            "recv-4096",
            "recv-8192",
            "recv-16384",
            "send-208",
            "send-1040",
            "send-2128",
            "send-4096",
            "send-8192",
            "send-16384",
        ];
        NAMES.into_iter().zip(self.all().map(|pool| &**pool))
    }

    /// Ends the pools' use before their device goes, or the module. No queue pair of the device is
    /// left. Sleeps.
    pub(crate) fn revoke(&self) -> Result {
        self.all().map(|pool| pool.revoke()).into_iter().collect()
    }
}

/// Pools of no device: for messages that have none to go through for now. Dropping it sleeps.
pub(crate) struct Unmapped(Arc<Pools>);

impl Unmapped {
    /// Empty pools. May sleep.
    pub(crate) fn new(limits: &Limits) -> Result<Self> {
        Ok(Self(Pools::make(None, None, limits)?))
    }

    pub(crate) fn pools(&self) -> &Arc<Pools> {
        &self.0
    }
}

impl Drop for Unmapped {
    fn drop(&mut self) {
        // Only queue pairs could be in the way, and there are none of no device.
        let _ = self.0.revoke();
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
