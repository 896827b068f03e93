// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of connections with large fragments that find no memory in large pieces.

use kernel::prelude::*;

#[kunit_tests(rds_ib_starvation)]
mod suite {
    use super::super::bench::*;
    use crate::{
        conn::Connection,
        kapi::{
            errno::Errno,
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

    /// Queues a message for which a new connection has no buffer, and lets it reconnect no more.
    /// Returns the buffers, and the time before.
    fn starve_sends(bench: &Bench, connection: &Arc<Connection>) -> Result<(KVec<BufMut>, u64)> {
        return_buffers(bench, connection)?;
        bench.wire.is_cut.store(true, Relaxed);
        let begin = time::monotonic_ns();
        Ok((lack_to_send(bench, connection, 1)?, begin))
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
        let (taken, begin) = starve_sends(&bench, &connection)?;
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
        give_up_while(|bench, connection| {
            let seen = checks(bench);
            let is_over = || is_reset(bench) || checks(bench) >= seen + 5;
            bench.fake.wait_until(is_over)?;
            connection.send_header();
            bench.fake.end_sends(1, ROOM, WcStatus::SUCCESS);
            Ok(())
        })
    }

    /// Each one takes longer than the time until the next check.
    #[test]
    fn headers_in_flight_return_no_buffer_to_a_transmission() -> Result {
        give_up_while(|bench, connection| {
            // The next check asks for a report of this one.
            connection.send_header();
            eventually(|| {
                let progress = bench.qp().map(|qp| qp.send_progress());
                is_reset(bench) || progress.is_some_and(|it| it.due)
            })?;
            let seen = checks(bench);
            eventually(|| is_reset(bench) || checks(bench) >= seen + 3)?;
            bench.fake.end_sends(1, ROOM, WcStatus::SUCCESS);
            // The connection may be gone. Otherwise it gets credits for more headers.
            let _ = bench.hear(1, 0, 2);
            Ok(())
        })
    }

    /// Repeats `step` while a transmission has no buffer, until the connection is given up. Checks
    /// that this takes as long as without the steps.
    fn give_up_while(step: impl Fn(&Bench, &Arc<Connection>) -> Result) -> Result {
        let bench = bench()?;
        let connection = bench.connect()?;
        let (taken, begin) = starve_sends(&bench, &connection)?;
        while !is_reset(&bench) {
            step(&bench, &connection)?;
        }
        let elapsed = time::monotonic_ns() - begin;
        drop(taken);
        let left = bench.end(connection);
        assert!((WAIT..LONG).contains(&elapsed));
        assert_eq!(left, 0);
        Ok(())
    }

    fn is_reset(bench: &Bench) -> bool {
        bench.counted(Counter::ConnReset) > 0
    }

    /// Returns the number of checks that have found no buffer to send.
    fn checks(bench: &Bench) -> u64 {
        bench.counted(Counter::IbTxAllocWait)
    }

    /// The device still has the buffer of the map. A header makes it report that.
    #[test]
    fn a_transmission_waits_for_buffers_that_the_device_may_return() -> Result {
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

    /// Waits until a counter has grown by `more`. Each check of the connection counts once.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the connection was given up.
    fn await_checks_while_up(bench: &Bench, counter: Counter, more: u64) -> Result {
        let (seen, is_up) = (bench.counted(counter), || bench.posted(1).is_some());
        eventually(|| !is_up() || bench.counted(counter) >= seen + more)?;
        match is_up() {
            true => Ok(()),
            false => Err(Errno::NotConnected.into()),
        }
    }

    /// Calls `get_on` again and again for longer than [`WAIT`], and waits until the connection is
    /// given up. Returns the time since the last call that got on.
    ///
    /// A call that fails because the connection was given up before does not count: this task may
    /// have been too slow.
    fn time_after_last(bench: &Bench, mut get_on: impl FnMut(u64) -> Result) -> Result<u64> {
        bench.wire.is_cut.store(true, Relaxed);
        let begin = time::monotonic_ns();
        let mut last = begin;
        for number in 1.. {
            let now = time::monotonic_ns();
            if now - begin >= WAIT + WAIT / 4 {
                break;
            }
            match get_on(number) {
                Ok(()) => last = now,
                Err(_) if bench.posted(1).is_none() => break,
                Err(error) => return Err(error),
            }
        }
        bench.await_counted(Counter::ConnReset, 1)?;
        Ok(time::monotonic_ns() - last)
    }

    /// Lets a transmission without a buffer send one frame. It has credit for one at a time, so it
    /// does not get the buffer of that frame.
    fn send_one(bench: &Bench, connection: &Arc<Connection>, taken: &mut KVec<BufMut>) -> Result {
        let before = bench.posted(1).ok_or(ENOENT)?;
        drop(taken.pop());
        connection.resume();
        let is_sent = || bench.posted(1).is_none_or(|posted| posted > before);
        bench.fake.wait_until(is_sent)?;
        bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        for buf in bench.take_buffers(8192)? {
            taken.push(buf, GFP_KERNEL)?;
        }
        bench.hear(1, 0, 1)?;
        // The first one may have begun before.
        await_checks_while_up(bench, Counter::IbTxAllocWait, 2)
    }

    /// Calls `before`, and lets a transmission with few buffers send a frame, again and again. Then
    /// it stops. Returns the time from then until the connection is given up.
    fn time_with_few_buffers(before: impl Fn(&Arc<Connection>)) -> Result<u64> {
        let bench = Bench::new(Setup {
            // The last credit is for a header.
            credit: MAX_UNSIGNALED + 2,
            large: true,
            ..Setup::small_pools()
        })?;
        let connection = bench.connect()?;
        return_buffers(&bench, &connection)?;
        let mut taken = lack_to_send(&bench, &connection, 12)?;
        let elapsed = time_after_last(&bench, |_| {
            before(&connection);
            send_one(&bench, &connection, &mut taken)
        })?;
        drop(taken);
        let left = bench.end(connection);
        assert_eq!(left, 0);
        Ok(elapsed)
    }

    #[test]
    fn a_transmission_with_few_buffers_is_given_up_once_it_stops() -> Result {
        let elapsed = time_with_few_buffers(|_| {})?;
        assert!((WAIT..LONG).contains(&elapsed));
        Ok(())
    }

    /// The map goes before the messages, which stay where they are.
    #[test]
    fn a_transmission_that_sends_maps_gets_on() -> Result {
        let elapsed = time_with_few_buffers(|connection| {
            connection.send_congestion_map();
        })?;
        assert!((WAIT..LONG).contains(&elapsed));
        Ok(())
    }

    /// Returns a connection with one receive, which flow control reserves for headers, and the
    /// other buffers. There is no memory for more.
    fn lack_to_receive(
        bench: &Bench,
        size: FragmentSize,
    ) -> Result<(Arc<Connection>, KVec<BufMut>)> {
        let pools = bench.pools().ok_or(ENODEV)?;
        let pool = pools.recv(size);
        let mut taken = KVec::new();
        taken.push(pool.alloc(Context::MaySleep).ok_or(ENOMEM)?, GFP_KERNEL)?;
        pool.refuse_from(0);
        while let Some(buf) = pool.alloc(Context::Atomic) {
            taken.push(buf, GFP_KERNEL)?;
        }
        drop(taken.pop());
        Ok((bench.connect()?, taken))
    }

    /// Receives a message, whose buffer is posted again.
    fn hear_one(bench: &Bench, sequence: u64) -> Result {
        bench.fake.wait_until(|| {
            let queues = bench.fake.queues(1);
            queues.is_none_or(|it| it.receives_posted > it.receives_ended)
        })?;
        bench.hear_message(1, sequence)?;
        await_checks_while_up(bench, Counter::IbRxRingEmpty, 1)
    }

    #[test]
    fn a_ring_with_one_receive_is_given_up_once_no_message_gets_on() -> Result {
        let bench = bench()?;
        let (connection, taken) = lack_to_receive(&bench, FragmentSize::K8)?;
        let elapsed = time_after_last(&bench, |sequence| hear_one(&bench, sequence))?;
        let small = uses_small_pieces(&bench, &connection)?;
        let drops = bench.counted(Counter::IbRxStarvedDrop);
        drop(taken);
        let left = bench.end(connection);
        assert!((WAIT..LONG).contains(&elapsed));
        assert_eq!((small, drops, left), (true, 1, 0));
        Ok(())
    }

    /// The smallest fragments leave all the time that it takes.
    #[test]
    fn a_starved_ring_is_filled_once_there_is_memory() -> Result {
        let bench = Bench::new(Setup {
            credit: 20,
            ..Setup::small_pools()
        })?;
        let (connection, taken) = lack_to_receive(&bench, FragmentSize::K4)?;
        bench.hear(1, 0, 0)?;
        bench.await_counted(Counter::IbRxRingEmpty, 2)?;
        let before = bench.fake.queues(1).ok_or(ENOENT)?;
        bench.refuse_from(u32::MAX)?;
        bench.await_receives(1, RECEIVES)?;
        let resets = bench.counted(Counter::ConnReset);
        drop(taken);
        let left = bench.end(connection);
        assert_eq!(before.receives_posted - before.receives_ended, 1);
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    /// They were added for connections that were given up, but may not be used.
    #[test]
    fn unused_shards_are_returned_except_one() -> Result {
        let bench = bench()?;
        let pools = bench.pools().ok_or(ENODEV)?;
        let pool = pools.recv(FragmentSize::K4);
        let added = [(); 3].map(|()| pool.add_shard(Context::MaySleep).is_ok());
        let before = small_shards(&bench)?;
        // After two checks without use.
        let returned = eventually(|| pool.stats().arena.shards == 1).is_ok();
        assert_eq!((added, before, returned), ([true; 3], 3, true));
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
