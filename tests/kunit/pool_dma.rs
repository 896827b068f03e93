// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the pools of a device behind an IOMMU: DMA mappings and the placement of memory.
//!
//! Needs QEMU's e1000 and intel-iommu, and two NUMA nodes: `scripts/rdsvm/hardware.py`. `make
//! bench-pool` makes its table from the numbers that the suite prints (Documentation/recv-pool.md).

use kernel::prelude::*;

#[kunit_tests(rds_pool_dma)]
mod suite {
    use crate::{
        kapi::{
            rdma::{
                stub::{
                    most_connections,
                    node_of,
                    online_nodes,
                    MappedBuf,
                    StubDevice,
                    StubQp,
                    ANY_NODE, //
                },
                Batch,
                BufMut,
                Pd, //
            },
            time::monotonic_ns, //
        },
        kunit::pool_sizes::SHARD,
        recv_pool::{
            Context,
            Counters,
            Limit,
            Pool,
            PoolConfig,
            SHARD_ORDERS, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const PAGE: u64 = 4096;
    const SAMPLES: usize = 101;

    /// The receive buffers of one connection.
    #[derive(Clone, Copy)]
    struct Ring {
        name: &'static str,
        /// Size of a buffer in bytes.
        size: u32,
        count: usize,
        /// Without a pool, the buffers stay mapped instead of being mapped again for each message.
        kept: bool,
    }

    /// An idle connection of this module, with fragments of 4 KiB. C RDS maps for each message.
    const RDS: Ring = Ring {
        name: "rds",
        size: 4352,
        count: 15,
        kept: false,
    };

    /// An NFS server's: twice its 64 credits and a batch of 7 (svc_rdma_post_recvs()).
    const SVCRDMA: Ring = Ring {
        name: "svcrdma",
        size: 4096,
        count: 135,
        kept: true,
    };

    /// Cost of one way of mapping. Times are in nanoseconds, or in instructions if the virtual
    /// machine counts those.
    struct Cost {
        mappings: usize,
        iova: Iova,
        /// Time for all connections: memory and mappings, and the mappings alone if known.
        setup: u64,
        mapping: Option<u64>,
        /// Time for one buffer, from the end of one message to the receive for another.
        refill: u64,
    }

    /// I/O virtual addresses.
    #[derive(Default)]
    struct Iova {
        /// Number of runs of adjacent pages.
        ranges: usize,
        /// Number of entries of an IOTLB with pages of 4 KiB.
        pages: usize,
    }

    impl Iova {
        /// Counts the addresses of the buffers of a ring. They are below 4 GiB for a PCI device.
        fn new(addresses: impl Iterator<Item = u64>, ring: &Ring) -> Result<Self> {
            const WORDS: u64 = (1 << 32) / PAGE / 64;
            let mut used = KVVec::from_elem(0u64, WORDS as usize, GFP_KERNEL)?;
            for address in addresses {
                let last = (address + u64::from(ring.size) - 1) / PAGE;
                for page in address / PAGE..=last {
                    let word = used.get_mut((page / 64) as usize).ok_or(ERANGE)?;
                    *word |= 1 << (page % 64);
                }
            }
            let mut this = Self::default();
            let mut before = 0;
            for word in used {
                let starts = word & !(word << 1 | before >> 63);
                this.pages += word.count_ones() as usize;
                this.ranges += starts.count_ones() as usize;
                before = word;
            }
            Ok(this)
        }
    }

    #[test]
    fn receive_rings() -> Result {
        compare(&RDS)
    }

    #[test]
    fn rings_as_those_of_svcrdma() -> Result {
        compare(&SVCRDMA)
    }

    fn compare(ring: &Ring) -> Result {
        let stub = StubDevice::new(ANY_NODE)?;
        check(stub.translates(), "there is no IOMMU")?;
        let pd = Pd::new(stub.device())?;
        let mut connections = 1;
        while connections <= most_connections() {
            let each = one_by_one(&stub, ring, connections)?;
            let shards = by_shard(&pd, ring, connections)?;
            let buffers = connections * ring.count;
            let whole = (SHARD / (ring.size as usize).max(1)).max(1);
            check(each.mappings == buffers, "one mapping for each buffer")?;
            check(
                shards.mappings == buffers.div_ceil(whole),
                "one for each shard",
            )?;
            check(
                shards.iova.pages <= each.iova.pages,
                "no more pages by shard",
            )?;
            check(
                shards.iova.pages <= shards.mappings * SHARD / PAGE as usize,
                "the buffers are in their shards",
            )?;
            report(ring, "each", connections, &each);
            report(ring, "shard", connections, &shards);
            connections *= 10;
        }
        Ok(())
    }

    /// Fails if `holds` is `false`. Outside of the test functions a failed assertion would panic.
    fn check(holds: bool, what: &str) -> Result {
        if holds {
            return Ok(());
        }
        pr_err!("rds_pool_dma: this does not hold: {}\n", what);
        Err(EINVAL)
    }

    fn report(ring: &Ring, way: &str, connections: usize, cost: &Cost) {
        pr_info!(
            "rds_pool_dma ring={} way={} connections={} buffers={} mappings={} ranges={} pages={} \
             setup={} mapping={} refill={}\n",
            ring.name,
            way,
            connections,
            connections * ring.count,
            cost.mappings,
            cost.iova.ranges,
            cost.iova.pages,
            cost.setup,
            cost.mapping.unwrap_or(0),
            cost.refill
        );
    }

    /// Measures the same memory with each buffer mapped separately.
    fn one_by_one(stub: &StubDevice, ring: &Ring, connections: usize) -> Result<Cost> {
        let pool = pool(None, ring)?;
        let total = connections * ring.count;
        let mut mapped = KVVec::with_capacity(total, GFP_KERNEL)?;
        let start = monotonic_ns();
        let bufs = fill(&pool, ring, connections)?;
        let filled = monotonic_ns();
        for buf in bufs {
            let buf = MappedBuf::new(stub.device(), buf)?;
            mapped.push_within_capacity(Some(buf)).map_err(|_| EINVAL)?;
        }
        let end = monotonic_ns();
        let addresses = mapped.iter().flatten().map(MappedBuf::address);
        let iova = Iova::new(addresses, ring)?;
        let refill = median(&mut mapped, |buf| {
            if ring.kept {
                if let Some(buf) = buf {
                    buf.sync();
                }
                return Ok(());
            }
            *buf = None;
            *buf = Some(MappedBuf::new(stub.device(), alloc(&pool)?)?);
            Ok(())
        })?;
        Ok(Cost {
            mappings: mapped.iter().flatten().count(),
            iova,
            setup: end - start,
            mapping: Some(end - filled),
            refill,
        })
    }

    /// Measures shards, as connections use them.
    fn by_shard(pd: &Arc<Pd>, ring: &Ring, connections: usize) -> Result<Cost> {
        let pool = pool(Some(pd), ring)?;
        let qp = StubQp::new(pd)?;
        let total = connections * ring.count;
        let start = monotonic_ns();
        let bufs = fill(&pool, ring, connections)?;
        let end = monotonic_ns();
        let stats = pool.stats();
        let whole = stats.arena.bytes == stats.arena.shards * SHARD;
        check(whole, "all shards have 64 KiB")?;
        let addresses = || bufs.iter().filter_map(|buf| qp.address(buf));
        check(addresses().count() == total, "all buffers are mapped")?;
        // Each shard is aligned to its size, so an IOTLB with pages of that size needs one entry.
        let aligned = addresses().filter(|address| address % SHARD as u64 == 0);
        check(aligned.count() == stats.arena.shards, "shards are aligned")?;
        let iova = Iova::new(addresses(), ring)?;
        let mut bufs = some(bufs)?;
        let refill = median(&mut bufs, |buf| {
            if ring.kept {
                if let Some(buf) = buf {
                    qp.sync_for_cpu(buf);
                    qp.sync_for_device(buf);
                }
                return Ok(());
            }
            if let Some(buf) = buf.take() {
                qp.sync_for_cpu(&buf);
            }
            let next = alloc(&pool)?;
            qp.sync_for_device(&next);
            *buf = Some(next);
            Ok(())
        })?;
        Ok(Cost {
            mappings: stats.arena.shards,
            iova,
            setup: end - start,
            mapping: None,
            refill,
        })
    }

    #[test]
    fn shards_are_next_to_their_device() -> Result {
        let nodes = online_nodes();
        assert!(nodes > 1);
        for node in 0..nodes {
            let stub = StubDevice::new(node)?;
            let pd = Pd::new(stub.device())?;
            let pool = pool(Some(&pd), &RDS)?;
            let bufs = fill(&pool, &RDS, 4)?;
            assert!(bufs.iter().all(|buf| node_of(buf) == node));
            assert_eq!(pool.stats().arena.foreign, 0);
        }
        Ok(())
    }

    #[test]
    fn peers_use_memory_itself_and_no_copy() -> Result {
        const WHOLE: u32 = PAGE as u32;
        let stub = StubDevice::new(ANY_NODE)?;
        assert_eq!(stub.share(8, 64, false), Ok(()));
        assert_eq!(stub.share(0, WHOLE, true), Ok(()));
        assert_eq!(stub.share(8, 64, true), Err(EIO));
        Ok(())
    }

    fn pool(pd: Option<&Arc<Pd>>, ring: &Ring) -> Result<Arc<Pool>> {
        let config = PoolConfig {
            buf_size: ring.size,
            orders: SHARD_ORDERS,
            arenas: 1,
        };
        let limit = Arc::new(Limit::new(usize::MAX), GFP_KERNEL)?;
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        Pool::new(pd.map(|pd| &**pd), None, limit, counters, config)
    }

    fn alloc(pool: &Pool) -> Result<BufMut> {
        pool.alloc(Context::MaySleep).ok_or(ENOMEM)
    }

    /// Fills the rings of some connections, one after the other.
    fn fill(pool: &Pool, ring: &Ring, connections: usize) -> Result<KVVec<BufMut>> {
        let mut bufs = KVVec::with_capacity(connections * ring.count, GFP_KERNEL)?;
        let mut batch = Batch::new();
        for _ in 0..connections {
            let mut missing = ring.count;
            while missing > 0 {
                let got = pool.alloc_many(missing, Context::MaySleep, &mut batch);
                missing -= got.map_err(|_| ENOMEM)?;
                while let Some(buf) = batch.pop() {
                    bufs.push_within_capacity(buf).map_err(|_| EINVAL)?;
                }
            }
        }
        Ok(bufs)
    }

    fn some<T>(from: KVVec<T>) -> Result<KVVec<Option<T>>> {
        let mut to = KVVec::with_capacity(from.len(), GFP_KERNEL)?;
        for item in from {
            to.push_within_capacity(Some(item)).map_err(|_| EINVAL)?;
        }
        Ok(to)
    }

    /// Returns the median time of an operation on some of the buffers, without the time to read the
    /// clock.
    fn median<T>(bufs: &mut [T], mut operation: impl FnMut(&mut T) -> Result) -> Result<u64> {
        let mut times = [0u64; SAMPLES];
        let mut clock = [0u64; SAMPLES];
        let step = (bufs.len() / SAMPLES).max(1);
        for (i, (time, clock)) in times.iter_mut().zip(&mut clock).enumerate() {
            let at = i * step % bufs.len().max(1);
            let buf = bufs.get_mut(at).ok_or(EINVAL)?;
            let start = monotonic_ns();
            let started = monotonic_ns();
            operation(buf)?;
            *time = monotonic_ns() - started;
            *clock = started - start;
        }
        Ok(middle(&times).saturating_sub(middle(&clock)))
    }

    fn middle(times: &[u64]) -> u64 {
        let below = |x: u64| times.iter().filter(|time| **time < x).count();
        let half = times.len() / 2;
        let upper = times.iter().copied().filter(|time| below(*time) <= half);
        upper.max().unwrap_or(0)
    }
}
