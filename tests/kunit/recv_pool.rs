// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of pools without a device: slots, shards, limits, revocation.

use kernel::prelude::*;

#[kunit_tests(rds_recv_pool)]
mod suite {
    use crate::{
        kapi::rdma::{
            Batch,
            BufMut, //
        },
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
            PoolConfig,
            SHARD_ORDERS, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// Fewer steps under Miri, which is slow.
    const STEPS: u32 = if cfg!(miri) { 200 } else { 4000 };

    #[test]
    fn all_slots_and_back() -> Result {
        let pool = pool(SIZE, SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        assert_eq!(bufs.len(), SLOTS);
        let stats = pool.stats();
        assert_eq!(stats.arena.in_use, SLOTS);
        assert_eq!(stats.arena.shards, 1);
        assert_eq!(stats.arena.bytes, SHARD);
        assert_eq!(stats.arena.empty, 0);
        assert_eq!(stats.refused, 1);
        assert_eq!(stats.failed, 0);

        bufs.clear();
        let stats = pool.stats();
        assert_eq!(stats.arena.in_use, 0);
        assert_eq!(stats.arena.high_water, SLOTS);
        assert_eq!(stats.arena.empty, 1);
        assert_eq!(take_all(&pool)?.len(), SLOTS);
        Ok(())
    }

    #[test]
    fn buffers_do_not_overlap() -> Result {
        for (size, slots) in [(SIZE, SLOTS), (256, 256), (272, 240), (65536, 1)] {
            let pool = pool(size, SHARD, &[4])?;
            let mut bufs = take_all(&pool)?;
            assert_eq!(bufs.len(), slots);
            for (buf, value) in bufs.iter_mut().zip(0u32..) {
                assert_eq!(buf.capacity(), size as usize);
                for chunk in buf.bytes_mut().chunks_exact_mut(4) {
                    chunk.copy_from_slice(&value.to_le_bytes());
                }
            }
            for (buf, value) in bufs.iter().zip(0u32..) {
                let value = value.to_le_bytes();
                assert!(buf.bytes().chunks_exact(4).all(|chunk| chunk == value));
            }
            // Each slot can be allocated again.
            bufs.clear();
            assert_eq!(take_all(&pool)?.len(), slots);
        }
        Ok(())
    }

    #[test]
    fn new_memory_is_zero() -> Result {
        let pool = pool(SIZE, SHARD, &[4])?;
        let bufs = take_all(&pool)?;
        assert!(bufs.iter().all(|buf| all(buf.bytes(), 0)));
        Ok(())
    }

    #[test]
    fn last_handle_frees() -> Result {
        let pool = pool(SIZE, SHARD, &[4])?;
        let mut buf = alloc(&pool)?;
        buf.bytes_mut().fill(7);
        let first = buf.freeze();
        let second = first.clone();
        drop(first);
        assert_eq!(pool.stats().arena.in_use, 1);
        let buf = second.thaw().map_err(|_| EBUSY)?;
        assert!(all(buf.bytes(), 7));
        drop(buf);
        assert_eq!(pool.stats().arena.in_use, 0);
        Ok(())
    }

    #[test]
    fn full_shards_come_back() -> Result {
        let pool = pool(SIZE, 3 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        assert_eq!(bufs.len(), 3 * SLOTS);
        // Frees one slot of each shard: the next three allocations need no new shard.
        for index in [2 * SLOTS, SLOTS, 0] {
            drop(bufs.remove(index).map_err(|_| EINVAL)?);
        }
        let refused = pool.stats().refused;
        for _ in 0..3 {
            bufs.push(alloc(&pool)?, GFP_KERNEL)?;
        }
        assert_eq!(pool.stats().refused, refused);
        assert_eq!(pool.stats().arena.in_use, 3 * SLOTS);
        assert!(pool.alloc(Context::MaySleep).is_none());
        Ok(())
    }

    #[test]
    fn spare_buffers_are_left_to_others() -> Result {
        const SPARE: usize = 2;
        let pool = pool(SIZE, 3 * SHARD, &[4])?;
        let mut bufs = KVec::new();
        while let Some(buf) = pool.alloc_leaving(SPARE, Context::MaySleep) {
            bufs.push(buf, GFP_KERNEL)?;
        }
        assert_eq!(bufs.len(), 3 * SLOTS - SPARE);
        assert_eq!(pool.stats().arena.free(), SPARE);
        assert_eq!(take_all(&pool)?.len(), SPARE);
        // Its buffers are free again. One more has to be free for a caller that leaves two.
        assert!(pool.alloc_leaving(SPARE, Context::MaySleep).is_none());
        drop(bufs.pop());
        assert!(pool.alloc_leaving(SPARE, Context::MaySleep).is_some());
        assert_eq!(pool.make_room(Context::MaySleep), Ok(()));
        let _rest = take_all(&pool)?;
        assert_eq!(pool.make_room(Context::MaySleep), Err(GrowError::Limit));
        bufs.clear();
        Ok(())
    }

    /// Frames need the spare buffers, which are all in an empty shard here.
    #[test]
    fn a_pool_beyond_its_limit_keeps_its_spare_buffers() -> Result {
        const SPARE: usize = 2;
        // The minimum of a limit that root sets.
        const LIMIT: usize = 512 * 4096;
        let limit = Arc::new(Limit::new(2 * LIMIT), GFP_KERNEL)?;
        let pool = pool_within(SIZE, limit.clone(), &[4])?;
        let mut bufs = KVec::new();
        for _ in 0..(LIMIT / SHARD + 1) * SLOTS {
            let buf = pool.alloc_leaving(SPARE, Context::MaySleep).ok_or(ENOMEM)?;
            bufs.push(buf, GFP_KERNEL)?;
        }
        let empty = pool.stats().arena.empty;
        limit.setting().set(512);
        let trimmed = pool.trim(usize::MAX);
        let left = take_all(&pool)?.len();
        bufs.clear();
        // Below the limit all is freed.
        let later = pool.trim(usize::MAX) + pool.trim(usize::MAX);
        assert_eq!((empty, trimmed, left), (1, 0, SLOTS));
        assert!(later > LIMIT && pool.stats().arena.bytes <= SHARD);
        Ok(())
    }

    #[test]
    fn empty_shards_are_kept_while_they_are_needed() -> Result {
        let pool = pool(SIZE, 4 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        assert_eq!(pool.stats().arena.shards, 4);
        bufs.clear();
        assert_eq!(pool.stats().arena.empty, 4);
        // All shards were in use since the last reap.
        pool.reap();
        assert_eq!(pool.stats().arena.shards, 4);
        // Two shards were needed for a short time, and one is spare. The fourth is freed.
        for _ in 0..SLOTS + 1 {
            bufs.push(alloc(&pool)?, GFP_KERNEL)?;
        }
        bufs.clear();
        pool.reap();
        assert_eq!(pool.stats().arena.shards, 3);
        pool.reap();
        assert_eq!(pool.stats().arena.shards, 1);
        pool.reap();
        assert_eq!(pool.stats().arena.shards, 1);
        assert_eq!(pool.stats().arena.bytes, SHARD);
        Ok(())
    }

    #[test]
    fn trim_returns_the_requested_memory() -> Result {
        let pool = pool(SIZE, 4 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        assert_eq!(pool.trim(usize::MAX), 0);
        bufs.truncate(SLOTS);
        assert_eq!(pool.trim(0), 0);
        assert_eq!(pool.trim(1), SHARD);
        assert_eq!(pool.stats().arena.empty, 2);
        assert_eq!(pool.trim(usize::MAX), 2 * SHARD);
        assert_eq!(pool.stats().arena.shards, 1);
        assert_eq!(pool.stats().arena.bytes, SHARD);
        bufs.clear();
        assert_eq!(pool.trim(SHARD + 1), SHARD);
        assert_eq!(pool.stats().arena.bytes, 0);
        // With a single buffer, a shard goes from full to empty at once.
        let pool = pool_of_large()?;
        let bufs = take_all(&pool)?;
        assert_eq!(bufs.len(), 3);
        drop(bufs);
        assert_eq!(pool.stats().arena.empty, 3);
        assert_eq!(pool.trim(usize::MAX), 3 * SHARD);
        Ok(())
    }

    #[test]
    fn the_fullest_shards_are_filled_first() -> Result {
        let pool = pool(SIZE, 3 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        // The first shard has a free slot, the second is almost empty, the third is empty.
        bufs.truncate(SLOTS + 1);
        drop(bufs.remove(0).map_err(|_| EINVAL)?);
        assert_eq!(pool.stats().arena.empty, 1);
        let first = alloc(&pool)?;
        // Frees the last buffer of the second shard, which got no new ones.
        drop(bufs.pop());
        assert_eq!(pool.stats().arena.empty, 2);
        let second = alloc(&pool)?;
        assert_eq!(pool.stats().arena.empty, 1);
        // A shard in use is preferred to an empty one.
        bufs.push(alloc(&pool)?, GFP_KERNEL)?;
        assert_eq!(pool.stats().arena.empty, 1);
        drop((first, second));
        Ok(())
    }

    #[test]
    fn buffers_know_their_true_size() -> Result {
        for (orders, share) in [
            (&[4], SHARD / SLOTS),
            (&[3], SHARD / 2 / 7),
            (&[2], SHARD / 4 / 3),
            (&[1], SHARD / 8),
        ] {
            let pool = pool(SIZE, SHARD, orders)?;
            assert_eq!(alloc(&pool)?.true_size(), share);
        }
        Ok(())
    }

    #[test]
    fn every_smaller_order_is_tried() -> Result {
        // Each pool lacks one more order.
        let all: [&'static [u32]; 4] = [&[11, 4, 3, 2, 1], &[11, 3, 2, 1], &[11, 2, 1], &[11, 1]];
        for (orders, bytes) in all
            .into_iter()
            .zip([SHARD, SHARD / 2, SHARD / 4, SHARD / 8])
        {
            let pool = pool(SIZE, usize::MAX, orders)?;
            let _buf = alloc(&pool)?;
            assert_eq!(pool.stats().arena.bytes, bytes);
            assert_eq!(pool.stats().fallbacks, 1);
        }
        Ok(())
    }

    #[test]
    fn smaller_orders_when_there_is_no_memory() -> Result {
        // No page allocator has order 11.
        let pool = pool(SIZE, usize::MAX, &[11, 2, 1])?;
        let buf = alloc(&pool)?;
        let stats = pool.stats();
        assert_eq!(stats.fallbacks, 1);
        assert_eq!(stats.failed, 0);
        assert_eq!(stats.arena.bytes, SHARD / 4);
        drop(buf);

        let pool = super_orders()?;
        assert!(pool.alloc(Context::Atomic).is_none());
        assert_eq!(pool.stats().failed, 1);
        assert_eq!(pool.stats().refused, 0);
        assert_eq!(pool.stats().arena.bytes, 0);
        assert_eq!(pool.stats().arena.shards, 0);
        Ok(())
    }

    #[test]
    fn a_work_item_finds_only_once_that_there_is_no_memory() -> Result {
        let pool = super_orders()?;
        let mut batch = Batch::new();
        for checks in 1..=2 {
            pool.begin_check();
            assert_eq!(pool.make_room(Context::Worker), Err(GrowError::NoMemory));
            for _ in 0..5 {
                let got = pool.alloc_many(1, Context::Worker, &mut batch);
                assert_eq!(got, Err(GrowError::Exhausted));
                assert_eq!(pool.make_room(Context::Worker), Err(GrowError::Exhausted));
            }
            assert_eq!(pool.stats().failed, checks);
        }
        // Others try, and may be charged to another control group.
        assert!(pool.alloc(Context::MaySleep).is_none());
        assert!(pool.alloc(Context::Atomic).is_none());
        assert_eq!(pool.stats().failed, 4);
        Ok(())
    }

    #[test]
    fn a_work_item_looks_for_room_below_the_limit_each_time() -> Result {
        let pool = pool(SIZE, SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        assert_eq!(pool.make_room(Context::Worker), Err(GrowError::Limit));
        drop(bufs.pop());
        assert_eq!(pool.make_room(Context::Worker), Ok(()));
        bufs.push(alloc(&pool)?, GFP_KERNEL)?;
        assert_eq!(pool.make_room(Context::Worker), Err(GrowError::Limit));
        Ok(())
    }

    #[test]
    fn a_shard_is_added_even_if_buffers_are_free() -> Result {
        let pool = pool(SIZE, 2 * SHARD, &[4])?;
        for shards in 1..=2 {
            assert_eq!(pool.add_shard(Context::Worker), Ok(()));
            assert_eq!(pool.make_room(Context::Worker), Ok(()));
            assert_eq!(pool.stats().arena.shards, shards);
        }
        assert_eq!(pool.add_shard(Context::Worker), Err(GrowError::Limit));
        Ok(())
    }

    #[test]
    fn smaller_orders_when_the_limit_is_near() -> Result {
        let pool = pool(SIZE, SHARD + SHARD / 2, SHARD_ORDERS)?;
        // 64 KiB with 15 buffers, then 32 KiB with 7.
        assert_eq!(take_all(&pool)?.len(), SLOTS + 7);
        assert_eq!(pool.stats().fallbacks, 1);
        assert_eq!(pool.stats().refused, 1);
        Ok(())
    }

    #[test]
    fn batches() -> Result {
        let pool = pool(SIZE, 2 * SHARD, &[4])?;
        let mut batch = Batch::new();
        assert_eq!(pool.alloc_many(5, Context::Atomic, &mut batch), Ok(5));
        assert_eq!(
            pool.alloc_many(40, Context::Atomic, &mut batch),
            Ok(Batch::MAX - 5)
        );
        assert_eq!(pool.alloc_many(1, Context::Atomic, &mut batch), Ok(0));
        assert_eq!(batch.len(), Batch::MAX);
        assert_eq!(pool.stats().arena.in_use, Batch::MAX);
        let buf = alloc(&pool)?;
        assert!(batch.push(buf).is_err());
        assert_eq!(pool.stats().arena.in_use, Batch::MAX);
        assert!(batch.pop().is_some());
        assert!(batch.push(alloc(&pool)?).is_ok());
        drop(batch);
        assert_eq!(pool.stats().arena.in_use, 0);
        assert_eq!(pool.stats().arena.empty, 2);
        Ok(())
    }

    #[test]
    fn a_pool_says_why_it_has_no_buffer() -> Result {
        let few = pool(SIZE, SHARD, &[4])?;
        let mut batch = Batch::new();
        // Free buffers are taken first.
        let got = few.alloc_many(Batch::MAX, Context::Atomic, &mut batch);
        assert_eq!(got, Ok(SLOTS));
        let got = few.alloc_many(1, Context::Atomic, &mut batch);
        assert_eq!(got, Err(GrowError::Limit));
        let got = super_orders()?.alloc_many(1, Context::Atomic, &mut batch);
        assert_eq!(got, Err(GrowError::NoMemory));
        few.revoke()?;
        let got = few.alloc_many(1, Context::Atomic, &mut batch);
        assert_eq!(got, Err(GrowError::Revoked));
        Ok(())
    }

    #[test]
    fn revoked_buffers_stay_readable() -> Result {
        let pool = pool(SIZE, 4 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        for buf in bufs.iter_mut() {
            buf.bytes_mut().fill(3);
        }
        // One shard full, one partial, two empty.
        bufs.truncate(2 * SLOTS - 1);
        pool.revoke()?;
        assert!(pool.alloc(Context::MaySleep).is_none());
        assert_eq!(pool.stats().arena.shards, 2);
        assert!(bufs.iter().all(|buf| all(buf.bytes(), 3)));
        pool.revoke()?;
        bufs.truncate(SLOTS);
        assert_eq!(pool.stats().arena.shards, 1);
        bufs.clear();
        assert_eq!(pool.stats().arena.shards, 0);
        assert_eq!(pool.stats().arena.bytes, 0);
        Ok(())
    }

    #[test]
    fn buffers_outlive_the_pool() -> Result {
        let pool = pool(SIZE, 2 * SHARD, &[4])?;
        let mut bufs = take_all(&pool)?;
        for buf in bufs.iter_mut() {
            buf.bytes_mut().fill(9);
        }
        drop(pool);
        bufs.truncate(3);
        assert!(bufs.iter().all(|buf| all(buf.bytes(), 9)));
        Ok(())
    }

    #[test]
    fn any_order_of_use() -> Result {
        let pool = pool(SIZE, 4 * SHARD, &[4])?;
        let mut bufs: KVec<(BufMut, u8)> = KVec::new();
        let mut random = 1u32;
        for step in 0..STEPS {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            let pick = (random >> 8) as usize;
            // More allocations than frees in even quarters, fewer in odd ones.
            if (pick % 8 < 5) == ((step / (STEPS / 4)) % 2 == 0) {
                if let Some(mut buf) = pool.alloc(Context::MaySleep) {
                    let mark = (step % 251) as u8;
                    buf.bytes_mut().fill(mark);
                    bufs.push((buf, mark), GFP_KERNEL)?;
                } else {
                    assert_eq!(bufs.len(), 4 * SLOTS);
                }
            } else if !bufs.is_empty() {
                let (buf, mark) = bufs.remove(pick % bufs.len()).map_err(|_| EINVAL)?;
                assert!(all(buf.bytes(), mark));
            }
            let stats = pool.stats().arena;
            assert_eq!(stats.in_use, bufs.len());
            assert_eq!(stats.bytes, stats.shards * SHARD);
            assert!(stats.shards * SLOTS >= stats.in_use);
            // The buffers in use fit into four shards, so no more are ever needed.
            assert!(stats.shards <= 4);
        }
        Ok(())
    }

    #[test]
    fn sizes_that_cannot_work() -> Result {
        let config = |arenas| PoolConfig {
            buf_size: SIZE,
            orders: SHARD_ORDERS,
            arenas,
        };
        for arenas in [0, 3] {
            let limit = Arc::new(Limit::new(SHARD), GFP_KERNEL)?;
            assert!(pool_of(config(arenas), limit).is_err());
        }
        assert!(pool(SIZE, SHARD, &[]).is_err());
        assert!(pool(0, SHARD, &[4]).is_err());
        // The smallest shard has no room for a buffer.
        assert!(pool(8193, SHARD, SHARD_ORDERS).is_err());
        Ok(())
    }

    fn pool(buf_size: u32, max_bytes: usize, orders: &'static [u32]) -> Result<Arc<Pool>> {
        pool_within(
            buf_size,
            Arc::new(Limit::new(max_bytes), GFP_KERNEL)?,
            orders,
        )
    }

    fn pool_within(buf_size: u32, limit: Arc<Limit>, orders: &'static [u32]) -> Result<Arc<Pool>> {
        let config = PoolConfig {
            buf_size,
            orders,
            arenas: 1,
        };
        pool_of(config, limit)
    }

    fn pool_of(config: PoolConfig, limit: Arc<Limit>) -> Result<Arc<Pool>> {
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        Pool::new(None, None, limit, counters, config)
    }

    fn pool_of_large() -> Result<Arc<Pool>> {
        pool(65536, 3 * SHARD, &[4])
    }

    fn super_orders() -> Result<Arc<Pool>> {
        pool(SIZE, usize::MAX, &[12, 11])
    }

    fn alloc(pool: &Pool) -> Result<BufMut> {
        pool.alloc(Context::MaySleep).ok_or(ENOMEM)
    }

    fn take_all(pool: &Pool) -> Result<KVec<BufMut>> {
        let mut bufs = KVec::new();
        while let Some(buf) = pool.alloc(Context::MaySleep) {
            bufs.push(buf, GFP_KERNEL)?;
        }
        Ok(bufs)
    }

    /// Returns `true` if all bytes are `mark`. Compares pieces of 64 bytes.
    fn all(bytes: &[u8], mark: u8) -> bool {
        bytes
            .chunks(64)
            .all(|piece| *piece == [mark; 64][..piece.len()])
    }
}
