// SPDX-License-Identifier: GPL-2.0

//! The buffer pools of one device, and those for messages without a device.
//!
//! # Operation
//!
//! A device has a pool for receives of each fragment size, and pools for sends of several sizes. A
//! buffer for sending has room for a header and the payload behind it. A system call allocates the
//! buffers of a message before the message is queued. Transmission allocates the others: for a
//! header alone, for the congestion map, and for a copy. A few buffers of each pool are left to
//! those, so a full queue cannot block itself.
//!
//! # Ownership
//!
//! A buffer belongs to its handle, and returns to its pool with the last one. It outlives the
//! pools. When the device is removed, the pools are revoked: nothing stays mapped, and the contents
//! can still be read and copied.
//!
//! # Errors
//!
//! An allocation fails if there is no memory, or the pool is at its limit. [`GrowError`] tells
//! these apart. Without memory a message fails with `ENOMEM`. At the limit its system call waits.
//! Transmission waits until the worker of the device has made room.

use super::{
    BufMut,
    Context,
    Counters,
    GrowError,
    Limit,
    Pool,
    PoolConfig,
    PoolUsage,
    SHARD_ORDERS, //
};
use crate::{
    kapi::{
        rdma::Pd,
        shrinker::Cache,
        sync::OwnedQueue, //
    },
    proto::wire::{
        FragmentSize,
        Header, //
    }, //
};
use kernel::{
    cpu::nr_cpu_ids,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Buffer sizes, in bytes, for a header and a payload shorter than any fragment. A shard of 64 KiB
/// holds 256, 60 and 30 of them.
const SHORT: [u32; 3] = [256, 1088, 2176];

/// Buffers of each pool for sending that are left when messages have taken all others. Frames that
/// need a buffer use them one after the other, so queued messages always get on.
const SPARE: usize = 2;

/// Maximum number of arenas of a pool for sending. Each keeps an empty shard.
const MAX_ARENAS: u32 = 16;

/// Returns the number of arenas of a pool for sending: one for each CPU, up to [`MAX_ARENAS`].
/// Beyond that, every 16th CPU shares one. CPUs that share none write no common cache line to take
/// a buffer.
fn arenas_for_sending() -> usize {
    nr_cpu_ids().min(MAX_ARENAS).next_power_of_two() as usize
}

/// Returns the size of a buffer for a whole fragment, in bytes. Each comment has the number of
/// buffers in a shard of 64 KiB.
const fn buf_size(size: FragmentSize) -> u32 {
    match size {
        // 15 buffers
        FragmentSize::K4 => 4352,
        // 7 buffers
        FragmentSize::K8 => 9344,
        // 3 buffers
        FragmentSize::K16 => 21824,
    }
}

/// Selects the entry for sending a header and `len` bytes of payload.
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

/// Returns the page orders of shards for such buffers.
const fn orders(size: FragmentSize) -> &'static [u32] {
    match size {
        FragmentSize::K4 => SHARD_ORDERS,
        FragmentSize::K8 => &[4, 3, 2],
        FragmentSize::K16 => &[4, 3],
    }
}

/// A buffer for a frame that is posted at once.
pub(crate) struct FrameBuf {
    pub(crate) buf: BufMut,
    /// The buffer is one of the last of its pool. Its frame has to report its completion, because
    /// other frames may wait for the buffer.
    pub(crate) is_spare: bool,
}

/// One value for each fragment size.
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

/// State shared by all pools of a node.
#[derive(Clone)]
pub(crate) struct PoolShared {
    /// Maximum size of one pool.
    pub(crate) most: Arc<Limit>,
    pub(crate) counters: Arc<Counters>,
    /// Work queue of the periodic search for unused memory.
    pub(crate) queue: Arc<OwnedQueue>,
}

/// The pools of one device, for received and for sent messages.
pub(crate) struct Pools {
    recv: BySize<Arc<Pool>>,
    short: [Arc<Pool>; SHORT.len()],
    large: BySize<Arc<Pool>>,
    /// Source of buffers for sending after the device was removed.
    unmapped: Option<Arc<Pools>>,
    counters: Arc<Counters>,
}

impl Pools {
    fn make(
        pd: Option<&Pd>,
        unmapped: Option<Arc<Pools>>,
        shared: &PoolShared,
    ) -> Result<Arc<Self>> {
        let pool = |buf_size, orders, arenas| {
            let config = PoolConfig {
                buf_size,
                orders,
                arenas,
            };
            let (queue, most) = (shared.queue.clone(), shared.most.clone());
            Pool::new(pd, Some(queue), most, shared.counters.clone(), config)
        };
        let [a, b, c] = SHORT;
        // Each arena keeps an empty shard, which would hold bounce buffers that others need.
        let arenas = match pd.and_then(|pd| pd.device().bounce_bounds()) {
            Some(_) => 1,
            None => arenas_for_sending(),
        };
        let short = |buf_size| pool(buf_size, SHARD_ORDERS, arenas);
        Ok(Arc::new(
            Self {
                // Device workers fill the rings, many buffers at a time.
                recv: BySize::try_new(|size| pool(buf_size(size), orders(size), 1))?,
                short: [short(a)?, short(b)?, short(c)?],
                large: BySize::try_new(|size| pool(buf_size(size), orders(size), arenas))?,
                unmapped,
                counters: shared.counters.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Creates empty pools for the queue pairs of `pd`. After they are revoked, buffers for sending
    /// come from `unmapped`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(pd: &Pd, unmapped: Arc<Pools>, shared: &PoolShared) -> Result<Arc<Self>> {
        Self::make(Some(pd), Some(unmapped), shared)
    }

    fn all(&self) -> [&Arc<Pool>; 9] {
        let (recv, large) = (&self.recv, &self.large);
        let [a, b, c] = &self.short;
        [
            &recv.k4, &recv.k8, &recv.k16, a, b, c, &large.k4, &large.k8, &large.k16,
        ]
    }

    /// Returns the pool for receives of fragments of `size`.
    pub(crate) fn recv(&self, size: FragmentSize) -> &Pool {
        self.recv.get(size)
    }

    fn send(&self, len: u32) -> &Pool {
        for_sending(len, self.short.each_ref().map(|pool| &**pool), |size| {
            self.large.get(size)
        })
    }

    /// Returns the bytes that [`Self::alloc_message`] takes for `len` bytes of payload.
    pub(crate) fn send_size(len: u32) -> u32 {
        for_sending(len, SHORT, buf_size)
    }

    /// Allocates a buffer for a message that will be queued: a header and `len` bytes of payload.
    /// [`SPARE`] buffers are left to [`Self::alloc_frame`].
    ///
    /// # Errors
    ///
    /// - [`GrowError`]
    ///
    /// # Context
    ///
    /// Process context without a spinlock, unless `context` is [`Context::Atomic`].
    pub(crate) fn alloc_message(&self, len: u32, context: Context) -> Result<BufMut, GrowError> {
        let pool = self.send(len);
        let found = pool.try_alloc_leaving(SPARE, context);
        if found.is_ok() {
            return found;
        }
        match self.unmapped.as_ref().filter(|_| pool.is_revoked()) {
            Some(unmapped) => unmapped.send(len).try_alloc_leaving(0, context),
            None => found,
        }
    }

    /// Allocates a buffer for a frame that is posted at once: a header and `len` bytes of payload.
    /// Returns `None` if there is no memory, or the pool is at its limit.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn alloc_frame(&self, len: u32) -> Option<FrameBuf> {
        let pool = self.send(len);
        let found = pool.alloc_leaving(SPARE, Context::Atomic);
        let is_spare = found.is_none();
        let buf = found.or_else(|| pool.take())?;
        Some(FrameBuf { buf, is_spare })
    }

    /// Makes sure that there is a buffer for sending `len` bytes of payload, if there is memory.
    ///
    /// # Errors
    ///
    /// - [`GrowError`]
    ///
    /// # Context
    ///
    /// Process context without a spinlock, unless `context` is [`Context::Atomic`].
    pub(crate) fn make_room(&self, len: u32, context: Context) -> Result<(), GrowError> {
        self.send(len).make_room(context)
    }

    /// Notes that the work item of the device begins to check its connections, see
    /// [`Context::Worker`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn begin_check(&self) {
        for pool in self.all() {
            pool.begin_check();
        }
    }

    /// Returns `true` if a buffer can be posted to queue pairs of the device.
    #[inline]
    pub(crate) fn can_send(&self, buf: &BufMut) -> bool {
        self.large.k4.reaches(buf)
    }

    /// Copies a header and `len` bytes of payload to a buffer that can be posted to the device.
    /// Returns `None` if there is no memory.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cold]
    pub(crate) fn copy(&self, other: &BufMut, len: u32) -> Option<FrameBuf> {
        let mut copy = self.alloc_frame(len)?;
        let end = Header::LEN.saturating_add(len as usize);
        let from = other.bytes().get(..end)?;
        copy.buf.bytes_mut().get_mut(..end)?.copy_from_slice(from);
        Some(copy)
    }

    /// Adds the memory of the pools to `pool_usage`.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn add_to(&self, pool_usage: &mut PoolUsage) {
        let stats = self.all().map(|pool| pool.arena_stats());
        stats.into_iter().for_each(|arena| pool_usage.add(arena));
    }

    /// Returns the pools with names for people.
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

    /// Revokes the pools before their device is removed or the module unloaded. No queue pair of
    /// the device may be left.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if a queue pair is left.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn revoke(&self) -> Result {
        self.all().map(|pool| pool.revoke()).into_iter().collect()
    }
}

/// Pools without a device, for messages that no device can carry at present. Dropping it sleeps.
pub(crate) struct Unmapped(Arc<Pools>);

impl Unmapped {
    /// Creates empty pools.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(shared: &PoolShared) -> Result<Self> {
        Ok(Self(Pools::make(None, None, shared)?))
    }

    pub(crate) fn pools(&self) -> &Arc<Pools> {
        &self.0
    }
}

impl Drop for Unmapped {
    fn drop(&mut self) {
        // Only queue pairs of a device could make this fail, and there is no device.
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
