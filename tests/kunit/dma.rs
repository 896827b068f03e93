// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of memory as a device sees it: behind an IOMMU, and through bounce buffers. The
//! kernel copies to and from bounce buffers only when memory is synchronised.
//!
//! Needs a machine from `scripts/rdsvm/hardware.py`. A device without a bus has no IOMMU, so with
//! `swiotlb=force` the kernel bounces all of its memory. Other suites use such a device, too:
//! `kapi/rdma/fake.rs`.

use kernel::prelude::*;

#[kunit_tests(rds_dma)]
mod suite {
    use crate::{
        kapi::{
            rdma::{
                stub::{
                    MappedBuf,
                    StubDevice,
                    StubQp,
                    ANY_NODE, //
                },
                BufMut,
                GrowError,
                Pd, //
            },
            sync::OwnedQueue, //
        },
        recv_pool::{
            Batch,
            Context,
            Counters,
            Limit,
            Pool,
            PoolConfig,
            PoolShared,
            Pools,
            Unmapped,
            SHARD_ORDERS, //
        }, //
    };
    use kernel::{
        cpu::nr_cpu_ids,
        prelude::*,
        sync::Arc, //
    };

    const SIZE: u32 = 4352;

    /// A device with a pool.
    struct Bench {
        pool: Arc<Pool>,
        pd: Arc<Pd>,
        stub: StubDevice,
    }

    impl Bench {
        fn new(stub: StubDevice) -> Result<Self> {
            let pd = Pd::new(stub.device())?;
            let pool = pool(&pd)?;
            Ok(Self { pool, pd, stub })
        }

        /// Creates a bench behind the IOMMU and one with bounce buffers.
        fn both() -> Result<[Self; 2]> {
            let both = [StubDevice::new(ANY_NODE)?, StubDevice::direct()?];
            assert_eq!(both.each_ref().map(StubDevice::translates), [true, false]);
            let bounces = both.each_ref().map(|stub| stub.bounce_bytes() > 0);
            assert_eq!(bounces, [false, true]);
            let [translated, bounced] = both;
            Ok([Self::new(translated)?, Self::new(bounced)?])
        }

        fn alloc(&self) -> Result<BufMut> {
            self.pool.alloc(Context::MaySleep).ok_or(ENOMEM)
        }
    }

    fn pool(pd: &Arc<Pd>) -> Result<Arc<Pool>> {
        pool_for(Some(&**pd))
    }

    fn pool_for(pd: Option<&Pd>) -> Result<Arc<Pool>> {
        let config = PoolConfig {
            buf_size: SIZE,
            orders: SHARD_ORDERS,
            arenas: 1,
        };
        let limit = Arc::new(Limit::new(usize::MAX), GFP_KERNEL)?;
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        Pool::new(pd, None, limit, counters, config)
    }

    fn has_only(bytes: &[u8], value: u8) -> bool {
        bytes.iter().all(|byte| *byte == value)
    }

    #[test]
    fn a_sync_makes_writes_visible_to_the_other_side() -> Result {
        for bench in Bench::both()? {
            let (mut sent, received) = (bench.alloc()?, bench.alloc()?);
            let qp = StubQp::new(&bench.pd)?;
            let addresses = (qp.address(&sent), qp.address(&received));
            let (from, to) = (addresses.0.ok_or(EINVAL)?, addresses.1.ok_or(EINVAL)?);
            sent.bytes_mut().fill(1);
            qp.sync_for_device(&sent);
            let mut seen = KVec::from_elem(0, SIZE as usize, GFP_KERNEL)?;
            bench.stub.read(from, &mut seen)?;
            assert!(has_only(&seen, 1));

            seen.fill(2);
            qp.sync_for_device(&received);
            bench.stub.write(to, &seen)?;
            qp.sync_for_cpu(&received);
            assert!(has_only(received.bytes(), 2));
            // The buffers are neighbours in one mapping.
            assert!(has_only(sent.bytes(), 1));
        }
        Ok(())
    }

    #[test]
    fn messages_that_wait_keep_their_bytes_when_the_device_goes() -> Result {
        for bench in Bench::both()? {
            let (mut waits, mut sent, received) = (bench.alloc()?, bench.alloc()?, bench.alloc()?);
            let qp = StubQp::new(&bench.pd)?;
            sent.bytes_mut().fill(1);
            qp.sync_for_device(&sent);
            let arrived = KVec::from_elem(2, SIZE as usize, GFP_KERNEL)?;
            let address = qp.address(&received).ok_or(EINVAL)?;
            bench.stub.write(address, &arrived)?;
            qp.sync_for_cpu(&received);
            drop(qp);
            // One buffer was never posted; the other is filled a second time.
            waits.bytes_mut().fill(3);
            sent.bytes_mut().fill(4);
            bench.pool.revoke()?;
            assert!(has_only(waits.bytes(), 3));
            assert!(has_only(sent.bytes(), 4));
            assert!(has_only(received.bytes(), 2));
        }
        Ok(())
    }

    #[test]
    fn large_local_memory_is_mapped() -> Result {
        // 512 KiB. The limit of bounce buffers is 256 KiB.
        const ORDER: u32 = 7;
        let [translated, bounced] = Bench::both()?;
        assert_eq!(translated.stub.map_contiguous(ORDER), Ok(()));
        assert_eq!(bounced.stub.map_contiguous(ORDER), Ok(()));
        Ok(())
    }

    /// A buffer of two pages is free at most beside each buffer that is in use.
    #[test]
    fn large_local_memory_is_mapped_with_small_bounce_buffers() -> Result {
        const ORDER: u32 = 7;
        let [_, bounced] = Bench::both()?;
        let unmapped = pool_for(None)?;
        let mut mapped = KVVec::new();
        loop {
            let buf = unmapped.alloc(Context::MaySleep).ok_or(ENOMEM)?;
            match MappedBuf::new(bounced.stub.device(), buf) {
                Ok(buf) => mapped.push(Some(buf), GFP_KERNEL)?,
                Err(_) => break,
            }
        }
        let full = bounced.stub.map_contiguous(ORDER);
        for buf in mapped.iter_mut().step_by(2) {
            *buf = None;
        }
        let in_part = bounced.stub.map_contiguous(ORDER);
        drop(mapped);
        assert!(full.is_err());
        assert_eq!(in_part, Ok(()));
        Ok(())
    }

    /// Takes buffers from a pool until it refuses, or holds `most` bytes. Returns the buffers and
    /// the bytes that it holds.
    fn take_all(pool: &Pool, most: usize) -> Result<(KVVec<BufMut>, usize)> {
        let mut bufs = KVVec::new();
        let mut batch = Batch::new();
        while pool.stats().arena.bytes < most {
            match pool.alloc_many(usize::MAX, Context::MaySleep, &mut batch) {
                Ok(_) => {}
                Err(GrowError::Limit) => break,
                Err(_) => return Err(ENOMEM),
            }
            while let Some(buf) = batch.pop() {
                bufs.push(buf, GFP_KERNEL)?;
            }
        }
        Ok((bufs, pool.stats().arena.bytes))
    }

    #[test]
    fn pools_leave_bounce_buffers_for_others() -> Result {
        let [translated, bounced] = Bench::both()?;
        let all = bounced.stub.bounce_bytes();
        let share = all / 8;
        // One pool.
        let (bufs, held) = take_all(&bounced.pool, all)?;
        assert!(held <= share && held > share / 2);
        let (free, unbound) = take_all(&translated.pool, 2 * share)?;
        assert!(unbound >= 2 * share);
        drop((bufs, free));
        bounced.pool.trim(usize::MAX);
        // Many pools.
        let mut pools = KVec::new();
        let mut total = 0;
        for _ in 0..24 {
            let pool = pool(&bounced.pd)?;
            let (bufs, held) = take_all(&pool, all)?;
            total += held;
            pools.push((bufs, pool), GFP_KERNEL)?;
        }
        assert!(total <= all * 3 / 8 && total > all * 5 / 16);
        // Returned bounce buffers can be allocated again.
        drop(pools);
        bounced.pool.trim(usize::MAX);
        assert!(bounced.alloc().is_ok());
        Ok(())
    }

    /// Each arena keeps an empty shard. Idle ones must not take the bounce buffers of others.
    #[test]
    fn pools_with_bounce_buffers_have_one_arena() -> Result {
        for bench in Bench::both()? {
            let pool_shared = PoolShared {
                most: Arc::new(Limit::new(usize::MAX), GFP_KERNEL)?,
                counters: Arc::new(Counters::new(), GFP_KERNEL)?,
                queue: Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?,
            };
            let unmapped = Unmapped::new(&pool_shared)?;
            let pools = Pools::new(&bench.pd, unmapped.pools().clone(), &pool_shared)?;
            let several = pools.named().any(|(_, pool)| pool.stats().arenas > 1);
            let bounces = bench.stub.bounce_bytes() > 0;
            // One arena is enough for one CPU.
            assert_eq!(several, !bounces && nr_cpu_ids() > 1);
        }
        Ok(())
    }

    /// Peers decide how much the receive pools of a device take. Its send pools need some, too.
    #[test]
    fn full_pools_leave_bounce_buffers_for_another() -> Result {
        let [_, bounced] = Bench::both()?;
        let all = bounced.stub.bounce_bytes();
        let mut pools = KVec::new();
        for _ in 0..4 {
            let pool = pool(&bounced.pd)?;
            pools.push((take_all(&pool, all)?, pool), GFP_KERNEL)?;
        }
        let (bufs, held) = take_all(&bounced.pool, all)?;
        // What the first one returns is available to the last one.
        let first = pools.remove(0)?;
        drop(first);
        let (more, held_now) = take_all(&bounced.pool, all)?;
        // Other suites need bounce buffers, too, even if this fails.
        drop((bufs, more, pools));
        bounced.pool.trim(usize::MAX);
        assert!(held > 0);
        assert!(held_now > held);
        Ok(())
    }
}
