// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of pools with several arenas: the limit, the spare buffers and memory pressure.

use kernel::prelude::*;

#[kunit_tests(rds_arenas)]
mod suite {
    use crate::{
        kapi::rdma::BufMut,
        kunit::pool_sizes::{
            SHARD,
            SIZE,
            SLOTS, //
        },
        recv_pool::{
            Context,
            Counters,
            GrowError,
            Limit,
            Pool,
            PoolConfig, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// Buffers that messages leave to frames.
    const SPARE: usize = 2;

    #[test]
    fn cpus_take_from_arenas_of_their_own() -> Result {
        let pool = pool_of_two_arenas(4)?;
        let mut bufs = [0, 1, 2, 3].map(|cpu| pool.alloc_on(cpu, 0, Context::MaySleep));
        let pages = bufs.each_ref().map(|buf| buf.as_ref().map(place));
        let [a, b, c, d] = pages;
        assert!(a.is_some() && a == c);
        assert!(b.is_some() && b == d && b != a);
        let stats = pool.stats();
        assert_eq!((stats.arena.shards, stats.arena.in_use), (2, 4));
        assert_eq!(stats.arena.bytes, 2 * SHARD);

        bufs.fill_with(|| None);
        let stats = pool.stats();
        assert_eq!((stats.arena.empty, stats.arena.in_use), (2, 0));
        assert_eq!(stats.arena.high_water, 4);
        // It has returned to its arena.
        let again = pool.alloc_on(1, 0, Context::MaySleep);
        assert_eq!(again.as_ref().map(place), b);
        drop(again);
        assert_eq!(pool.trim(usize::MAX), 2 * SHARD);
        assert_eq!(pool.stats().arena.bytes, 0);
        Ok(())
    }

    #[test]
    fn the_maximum_of_several_arenas_is_an_upper_bound() -> Result {
        let pool = pool_of_two_arenas(2)?;
        for cpu in [0, 1] {
            drop(pool.alloc_on(cpu, 0, Context::MaySleep));
        }
        assert_eq!(pool.stats().arenas, 2);
        assert_eq!(pool.stats().arena.high_water, 2);
        Ok(())
    }

    #[test]
    fn arenas_share_the_limit() -> Result {
        const SHARDS: usize = 2;
        let pool = pool_of_two_arenas(SHARDS)?;
        let mut bufs = KVec::new();
        while let Some(buf) = pool.alloc_on(0, SPARE, Context::MaySleep) {
            bufs.push(buf, GFP_KERNEL)?;
        }
        assert_eq!(bufs.len(), SHARDS * SLOTS - SPARE);
        assert!(pool.alloc_on(1, SPARE, Context::MaySleep).is_none());
        let stats = pool.stats();
        assert_eq!((stats.arena.shards, stats.refused), (SHARDS, 2));
        // Buffers that are free serve all CPUs.
        bufs.truncate(SLOTS);
        let other = pool.alloc_on(1, SPARE, Context::MaySleep);
        assert!(other.is_some());
        assert_eq!(pool.stats().refused, 2);

        drop((bufs, other));
        assert_eq!(pool.trim(usize::MAX), SHARDS * SHARD);
        assert!(pool.alloc_on(1, SPARE, Context::MaySleep).is_some());
        pool.revoke()?;
        assert!([0, 1]
            .iter()
            .all(|cpu| pool.alloc_on(*cpu, 0, Context::MaySleep).is_none()));
        assert_eq!(pool.stats().arena.bytes, 0);
        Ok(())
    }

    /// Otherwise each arena would have buffers that no message can take.
    #[test]
    fn spare_buffers_are_those_of_the_pool() -> Result {
        const SHARDS: usize = 2;
        let pool = pool_of_two_arenas(SHARDS)?;
        let mut bufs = KVec::new();
        // The CPUs take in turns, so each arena has a shard.
        for turn in 0..SHARDS * SLOTS {
            let buf = pool.alloc_on(turn % 2, SPARE, Context::MaySleep);
            bufs.push(buf, GFP_KERNEL)?;
        }
        assert_eq!(pool.stats().arena.shards, SHARDS);
        assert_eq!(bufs.iter().flatten().count(), SHARDS * SLOTS - SPARE);
        assert_eq!(pool.stats().arena.free(), SPARE);
        Ok(())
    }

    /// Otherwise each message of this CPU would wait for reclaim, or take from the reserves.
    #[test]
    fn buffers_of_others_come_before_memory_that_is_short() -> Result {
        for context in [Context::MaySleep, Context::Atomic] {
            let pool = pool_of_two_arenas(4)?;
            let first = pool.alloc_on(0, SPARE, context).ok_or(ENOMEM)?;
            // The page allocator tries hard for the smallest order, which is 3 here.
            pool.refuse_from(4);
            let mut bufs = KVec::new();
            for _ in 0..SLOTS - SPARE - 1 {
                let buf = pool.alloc_on(1, SPARE, context).ok_or(ENOMEM)?;
                assert_eq!(place(&buf), place(&first));
                bufs.push(buf, GFP_KERNEL)?;
            }
            let before = pool.stats();
            // The others are left to frames.
            let last = pool.alloc_on(1, SPARE, context);
            let after = pool.stats();
            assert_eq!((before.arena.shards, before.arena.free()), (1, SPARE));
            assert_eq!((after.arena.shards, last.is_some()), (2, true));
            assert_eq!(after.arena.bytes, SHARD + SHARD / 2);
            assert_eq!((after.failed, after.refused), (0, 0));
        }
        Ok(())
    }

    /// Otherwise a CPU would fail to allocate large pieces for each message.
    #[test]
    fn a_cpu_that_borrows_seldom_looks_for_memory() -> Result {
        // Most buffers for each time that it looks.
        const MANY: u64 = 40;
        const BORROWED: u64 = 10 * SLOTS as u64;
        for context in [Context::MaySleep, Context::Atomic] {
            let pool = pool_of_two_arenas(40)?;
            let mut bufs = KVec::new();
            for _ in 0..2 * BORROWED {
                let buf = pool.alloc_on(0, 0, context).ok_or(ENOMEM)?;
                bufs.push(buf, GFP_KERNEL)?;
            }
            bufs.clear();
            pool.refuse_from(4);
            for _ in 0..BORROWED {
                let buf = pool.alloc_on(1, 0, context).ok_or(ENOMEM)?;
                bufs.push(buf, GFP_KERNEL)?;
            }
            let scarce = pool.stats();
            // Memory is back, and this CPU finds it while others still have buffers.
            pool.refuse_from(u32::MAX);
            for _ in 0..BORROWED {
                let buf = pool.alloc_on(1, 0, context).ok_or(ENOMEM)?;
                bufs.push(buf, GFP_KERNEL)?;
            }
            let after = pool.stats();
            assert!((1..=BORROWED / MANY).contains(&scarce.denied));
            assert_eq!(after.denied, scarce.denied);
            assert!(after.arena.shards > scarce.arena.shards);
            assert!(after.arena.free() >= SLOTS);
        }
        Ok(())
    }

    /// A CPU that has found memory looks for more at once.
    #[test]
    fn memory_ends_borrowing() -> Result {
        let pool = pool_of_two_arenas(4)?;
        let mut bufs = KVec::new();
        bufs.push(pool.alloc_on(0, 0, Context::MaySleep), GFP_KERNEL)?;
        pool.refuse_from(4);
        bufs.push(pool.alloc_on(1, 0, Context::MaySleep), GFP_KERNEL)?;
        pool.refuse_from(u32::MAX);
        // Another CPU has found memory.
        for _ in 0..SLOTS {
            bufs.push(pool.alloc_on(0, 0, Context::MaySleep), GFP_KERNEL)?;
        }
        let before = pool.stats().arena.shards;
        bufs.push(pool.alloc_on(1, 0, Context::MaySleep), GFP_KERNEL)?;
        assert_eq!((before, pool.stats().arena.shards), (2, 3));
        assert!(bufs.iter().all(Option::is_some));
        Ok(())
    }

    /// A frame needs one of them, and waits until there is room.
    #[test]
    fn frames_get_the_spare_buffers_of_any_arena() -> Result {
        const SHARDS: usize = 2;
        // This test runs on a CPU of one of the two arenas. The other one has no buffers then.
        for owner in [0, 1] {
            let pool = pool_of_two_arenas(SHARDS)?;
            let mut bufs = KVec::new();
            while let Some(buf) = pool.alloc_on(owner, SPARE, Context::MaySleep) {
                bufs.push(buf, GFP_KERNEL)?;
            }
            assert_eq!(bufs.len(), SHARDS * SLOTS - SPARE);
            for _ in 0..SPARE {
                assert_eq!(pool.make_room(Context::MaySleep), Ok(()));
                bufs.push(pool.take().ok_or(ENOMEM)?, GFP_KERNEL)?;
            }
            assert!(pool.take().is_none());
            assert_eq!(pool.make_room(Context::MaySleep), Err(GrowError::Limit));
            assert_eq!(pool.stats().arena.shards, SHARDS);
        }
        Ok(())
    }

    #[test]
    fn a_trim_frees_no_more_than_was_asked_for() -> Result {
        let pool = pool_of_two_arenas(2)?;
        drop([0, 1].map(|cpu| pool.alloc_on(cpu, 0, Context::MaySleep)));
        assert_eq!(pool.stats().arena.empty, 2);
        assert_eq!(pool.trim(SHARD), SHARD);
        assert_eq!(pool.stats().arena.empty, 1);
        assert_eq!(pool.trim(SHARD + 1), SHARD);
        assert_eq!(pool.stats().arena.bytes, 0);
        Ok(())
    }

    /// Its buffers may be those that messages have left to frames.
    #[test]
    fn a_pool_beyond_its_limit_keeps_one_empty_shard() -> Result {
        // The minimum of a limit that root sets.
        const LIMIT: usize = 512 * 4096;
        let limit = Arc::new(Limit::new(2 * LIMIT), GFP_KERNEL)?;
        let pool = pool_within(limit.clone())?;
        let mut bufs = KVec::new();
        for _ in 0..LIMIT / SHARD * SLOTS {
            let buf = pool.alloc_on(0, 0, Context::MaySleep).ok_or(ENOMEM)?;
            bufs.push(buf, GFP_KERNEL)?;
        }
        drop([0, 1].map(|cpu| pool.alloc_on(cpu, 0, Context::MaySleep)));
        let empty = pool.stats().arena.empty;
        limit.setting().set(512);
        let trimmed = [pool.trim(usize::MAX), pool.trim(usize::MAX)];
        assert_eq!((empty, trimmed), (2, [SHARD, 0]));
        assert_eq!(pool.stats().arena.bytes, LIMIT + SHARD);
        Ok(())
    }

    fn pool_of_two_arenas(shards: usize) -> Result<Arc<Pool>> {
        pool_within(Arc::new(Limit::new(shards * SHARD), GFP_KERNEL)?)
    }

    fn pool_within(limit: Arc<Limit>) -> Result<Arc<Pool>> {
        let config = PoolConfig {
            buf_size: SIZE,
            orders: &[4, 3],
            arenas: 2,
        };
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        Pool::new(None, None, limit, counters, config)
    }

    /// Returns the number of the shard of a buffer. Shards are as large as their alignment.
    fn place(buf: &BufMut) -> usize {
        buf.bytes().as_ptr() as usize / SHARD
    }
}
