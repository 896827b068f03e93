// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of connections with large fragments that find no memory in large pieces.

use kernel::prelude::*;

#[kunit_tests(rds_ib_starvation)]
mod suite {
    use super::super::bench::*;
    use crate::{
        conn::Connection,
        kapi::{
            rdma::{
                WcStatus,
                MAX_UNSIGNALED, //
            },
            time, //
        },
        msg::Message,
        proto::wire::FragmentSize,
        recv_pool::{
            BufMut,
            Context, //
        },
        stats::Counter, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::Relaxed,
            Arc, //
        }, //
    };

    /// Page order of the smallest piece that has room for a fragment of 8 KiB.
    const LARGE: u32 = 2;
    /// Sends of a connection with one message: the map, and the message.
    const FIRST: u32 = 2;
    /// Receives that are posted at first if there is memory.
    const DEPTH: u32 = 14;
    const MS: u64 = 1_000_000;
    /// Time after which a connection is given up if nothing gets on.
    const WAIT: u64 = 1000 * MS;
    /// Time that is longer, and less than half a minute, on a slow machine, too.
    const LONG: u64 = 20 * WAIT;
    /// Number of checks, one in 20 ms at most, that take longer than [`WAIT`].
    const CHECKS: u32 = 70;

    fn bench() -> Result<Bench> {
        Bench::new(Setup {
            credit: 20,
            large: true,
            ..Setup::small_pools()
        })
    }

    /// Queues messages in pieces of 16 KiB. Each is sent in eight frames, whose payload is copied.
    /// No buffer is left for one, and there is no memory in large pieces. Returns the buffers.
    fn lack_to_send(
        bench: &Bench,
        connection: &Arc<Connection>,
        count: u32,
    ) -> Result<KVec<BufMut>> {
        let pools = bench.pools().ok_or(ENODEV)?;
        let mut messages = KVec::new();
        for _ in 0..count {
            let message = Message::of_len(&pools, FragmentSize::K16, 4000, 64 << 10)?;
            messages.push(message, GFP_KERNEL)?;
        }
        bench.refuse_from(LARGE)?;
        let taken = bench.take_buffers(8192)?;
        for message in messages {
            connection.send(message).map_err(|_| EINVAL)?;
        }
        Ok(taken)
    }

    /// Lets the device report all sends of a new connection, so that it keeps no buffer.
    fn return_buffers(bench: &Bench, connection: &Arc<Connection>) -> Result {
        bench.send(connection, MAX_UNSIGNALED - FIRST)?;
        bench.await_sends(1, MAX_UNSIGNALED)?;
        bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        Ok(())
    }

    /// Waits for a number of checks that find no buffer to send.
    fn await_checks(bench: &Bench, count: u32) -> Result {
        let seen = bench.counted(Counter::IbTxAllocWait);
        bench.await_counted(Counter::IbTxAllocWait, seen + u64::from(count))
    }

    /// Returns `true` if a connection was given up for memory in small pieces: the device has
    /// allocated some, and the next endpoint will use them.
    fn uses_small_pieces(bench: &Bench, connection: &Connection) -> Result<bool> {
        let shards = small_shards(bench)?;
        let size = connection.path.largest_fragments(FragmentSize::K8);
        Ok(shards == 1 && size == FragmentSize::K4)
    }

    /// Returns the number of shards for receives of the smallest fragments.
    fn small_shards(bench: &Bench) -> Result<usize> {
        let pools = bench.pools().ok_or(ENODEV)?;
        Ok(pools.recv(FragmentSize::K4).stats().arena.shards)
    }

    #[test]
    fn a_transmission_without_memory_is_given_up_after_a_second() -> Result {
        let bench = bench()?;
        let connection = bench.connect()?;
        return_buffers(&bench, &connection)?;
        bench.wire.is_cut.store(true, Relaxed);
        let begin = time::monotonic_ns();
        let taken = lack_to_send(&bench, &connection, 1)?;
        bench.await_counted(Counter::ConnReset, 1)?;
        let elapsed = time::monotonic_ns() - begin;
        let small = uses_small_pieces(&bench, &connection)?;
        let of_receives = bench.counted(Counter::IbRxStarvedDrop);
        drop(taken);
        let left = bench.end(connection);
        assert!((WAIT..LONG).contains(&elapsed));
        assert_eq!((small, of_receives, left), (true, 0, 0));
        Ok(())
    }

    #[test]
    fn headers_are_no_sign_that_a_transmission_gets_on() -> Result {
        let bench = bench()?;
        let connection = bench.connect()?;
        return_buffers(&bench, &connection)?;
        bench.wire.is_cut.store(true, Relaxed);
        let begin = time::monotonic_ns();
        let taken = lack_to_send(&bench, &connection, 1)?;
        let is_reset = || bench.counted(Counter::ConnReset) > 0;
        while !is_reset() {
            let checks = || bench.counted(Counter::IbTxAllocWait);
            let seen = checks();
            bench
                .fake
                .wait_until(|| is_reset() || checks() >= seen + 5)?;
            connection.send_header();
            bench.fake.end_sends(1, ROOM, WcStatus::SUCCESS);
        }
        let elapsed = time::monotonic_ns() - begin;
        drop(taken);
        let left = bench.end(connection);
        assert!((WAIT..LONG).contains(&elapsed));
        assert_eq!(left, 0);
        Ok(())
    }

    /// The device still has the buffer of the map. A header makes it report that.
    #[test]
    fn a_transmission_waits_for_what_the_device_may_return() -> Result {
        let bench = bench()?;
        let connection = bench.connect()?;
        let taken = lack_to_send(&bench, &connection, 1)?;
        await_checks(&bench, CHECKS)?;
        let resets = bench.counted(Counter::ConnReset);
        let before = bench.posted(1);
        bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        bench.await_sends(1, FIRST + 2)?;
        drop(taken);
        let left = bench.end(connection);
        assert_eq!((resets, before, left), (0, Some(FIRST + 1), 0));
        Ok(())
    }

    /// Each buffer that the device returns is used for the next frame.
    #[test]
    fn a_transmission_that_gets_on_with_few_buffers_is_kept() -> Result {
        let bench = Bench::new(Setup {
            large: true,
            ..Setup::small_pools()
        })?;
        let connection = bench.connect()?;
        let taken = lack_to_send(&bench, &connection, 12)?;
        let begin = time::monotonic_ns();
        let mut ended = 0;
        while time::monotonic_ns() - begin < WAIT + WAIT / 4 {
            await_checks(&bench, 2)?;
            let posted = bench.posted(1).ok_or(ENOENT)?;
            ended += bench.end_sends(1, posted - ended, WcStatus::SUCCESS)?;
            bench.await_sends(1, posted + 1)?;
        }
        let resets = bench.counted(Counter::ConnReset);
        drop(taken);
        let left = bench.end(connection);
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    /// Returns a connection with one receive, which flow control reserves for headers, and the
    /// other buffers. There is no memory in large pieces.
    fn lack_to_receive(bench: &Bench) -> Result<(Arc<Connection>, KVec<BufMut>)> {
        let pools = bench.pools().ok_or(ENODEV)?;
        // For the map.
        drop(pools.alloc_frame(8192).ok_or(ENOMEM)?);
        let pool = pools.recv(FragmentSize::K8);
        let mut taken = KVec::new();
        taken.push(pool.alloc(Context::MaySleep).ok_or(ENOMEM)?, GFP_KERNEL)?;
        bench.refuse_from(LARGE)?;
        while let Some(buf) = pool.alloc(Context::Atomic) {
            taken.push(buf, GFP_KERNEL)?;
        }
        drop(taken.pop());
        Ok((bench.connect()?, taken))
    }

    #[test]
    fn a_ring_with_one_receive_is_given_up_once_no_message_gets_on() -> Result {
        let bench = bench()?;
        let (connection, taken) = lack_to_receive(&bench)?;
        bench.wire.is_cut.store(true, Relaxed);
        let begin = time::monotonic_ns();
        let mut last = begin;
        // The buffers of the messages are posted again.
        for sequence in 1.. {
            bench.await_receives(1, 1)?;
            last = time::monotonic_ns();
            let checks = bench.counted(Counter::IbRxRingEmpty);
            bench.hear_message(1, sequence)?;
            bench.await_counted(Counter::IbRxRingEmpty, checks + 1)?;
            if last - begin > WAIT + WAIT / 4 {
                break;
            }
        }
        let kept = bench.counted(Counter::ConnReset) == 0;
        bench.await_counted(Counter::ConnReset, 1)?;
        let elapsed = time::monotonic_ns() - last;
        let small = uses_small_pieces(&bench, &connection)?;
        let drops = bench.counted(Counter::IbRxStarvedDrop);
        drop(taken);
        let left = bench.end(connection);
        assert!((WAIT..LONG).contains(&elapsed));
        assert_eq!((kept, small, drops, left), (true, true, 1, 0));
        Ok(())
    }

    #[test]
    fn a_starved_ring_is_filled_once_there_is_memory() -> Result {
        let bench = bench()?;
        let (connection, taken) = lack_to_receive(&bench)?;
        bench.hear(1, 0, 0)?;
        bench.await_counted(Counter::IbRxRingEmpty, 2)?;
        let before = bench.fake.queues(1).ok_or(ENOENT)?;
        bench.refuse_from(u32::MAX)?;
        bench.await_receives(1, DEPTH)?;
        let resets = bench.counted(Counter::ConnReset);
        drop(taken);
        let left = bench.end(connection);
        assert_eq!(before.receives_posted - before.receives_ended, 1);
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn connections_go_one_by_one_and_faster_if_there_are_small_pieces() -> Result {
        let bench = bench()?;
        let connection = bench.connect()?;
        let device = bench.qp().ok_or(ENOENT)?.handler().device.clone();
        let begin = time::monotonic_ns();
        let may = |ms: u64, lacks_pieces| device.may_give_up(begin + ms * MS, lacks_pieces);
        bench.refuse_from(LARGE)?;
        // The time that an attempt takes counts, too.
        let with_pieces = [(0, true), (19, true), (600, true)].map(|(ms, lacks)| may(ms, lacks));
        let made = small_shards(&bench)?;
        bench.refuse_from(0)?;
        // The buffers of those are free, but they are for connections that were given up.
        let without = [
            (1200, true),
            (2199, true),
            (2800, false),
            (3799, true),
            (4400, true),
        ]
        .map(|(ms, lacks)| may(ms, lacks));
        let made_without = small_shards(&bench)? - made;
        drop(device);
        let left = bench.end(connection);
        assert_eq!((with_pieces, made), ([true, false, true], 2));
        assert_eq!(without, [true, false, true, false, true]);
        assert_eq!((made_without, left), (0, 0));
        Ok(())
    }
}
