// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the receive side of TCP endpoints, over the loopback device.

use kernel::prelude::*;

#[kunit_tests(rds_tcp_reader)]
mod suite {
    use crate::{
        conn::{
            Connection,
            Request,
            Transport, //
        },
        kapi::{
            net::NetRef,
            task::UserId, //
        },
        kunit::{
            tcp_bench::Bench,
            tcp_ends::{
                connected,
                send,
                Ends, //
            },
            transport::pool_shared,
            wait::eventually, //
        },
        proto::wire::{
            FragmentSize,
            Header, //
        },
        recv_pool::Context,
        tcp_transport::{
            IncomingStream,
            PartialBudget,
            PartialLimit,
            ReadMemory,
            ReadStop,
            Reader,
            Tcp,
            TcpCounters,
            TcpEndpoint,
            TcpShared,
            TcpTunables, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const FRAME: usize = FragmentSize::K8.bytes() as usize;

    /// Returns the header of a message to a port without a socket.
    fn header(sequence: u64, len: u32) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        Header {
            sequence,
            len,
            sport: 1,
            dport: 1,
            ..Header::default()
        }
        .emit(&mut bytes);
        bytes
    }

    /// Receives until the reader has taken this number of frames, and stops for this reason.
    fn read(
        ends: &Ends,
        (bench, connection): (&Bench, &Arc<Connection>),
        reader: &mut Reader,
        limit: Option<PartialLimit>,
        expected: (u32, ReadStop),
    ) -> Result {
        let memory = ReadMemory {
            pools: bench.wire.unmapped.pools(),
            packets: 0,
            context: Context::MaySleep,
            limit,
        };
        let counters = TcpCounters::new()?;
        ends.right_events.until(|| {
            let stop = reader.run(&ends.right, connection, memory, &counters, 256);
            ((reader.frames, stop) == expected).then_some(())
        })
    }

    #[test]
    fn strangers_have_a_part_of_the_buffers_for_incomplete_messages() -> Result {
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect()?;
        let on = (&bench, &connection);
        let budget = PartialBudget::new()?;
        let mut reader = Reader::new(budget.charge());
        let limit = PartialLimit::of_pool(0);
        let pool = bench.wire.unmapped.pools().recv(FragmentSize::K8);
        let size = pool.buf_size();
        // Others leave room for two buffers.
        let (mut others, most) = (budget.charge(), limit.of_frame(false));
        let has_room = others.add(most - 2 * size, most);
        let payload = KVec::from_elem(0u8, 4 * FRAME, GFP_KERNEL)?;
        let (first, second) = (header(1, 4), header(2, 1 << 20));
        send(&ends.left, &[&first, b"four", &second, &payload])?;
        let stopped = (1 + 2, ReadStop::NoMemory);
        let limited = read(&ends, on, &mut reader, Some(limit), stopped);
        let in_parts = connection.path.in_reassembly();
        // Those without the limit go on.
        let known = read(&ends, on, &mut reader, None, (1 + 4, ReadStop::Nothing));
        // A last frame has more room, and the charge ends with the reader.
        let full = [false, true].map(|is_last| others.add(size, limit.of_frame(is_last)));
        reader.close();
        let free = others.add(size, most);
        drop(bench);
        assert_eq!((has_room, limited, in_parts), (true, Ok(()), true));
        assert_eq!(known, Ok(()));
        assert_eq!((full, free), ([false, true], true));
        Ok(())
    }

    /// Messages are long, so that some of their packets have little memory besides.
    #[test]
    fn long_payload_stays_in_packets_if_its_memory_may() -> Result {
        const LEN: usize = 1 << 20;
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        let payload = KVVec::from_elem(7u8, LEN, GFP_KERNEL)?;
        let mut found = KVec::new();
        for (packets, sequence) in [usize::MAX, 0].into_iter().zip(1..) {
            let (ends, counters) = (connected()?, TcpCounters::new()?);
            let mut reader = Reader::new(PartialBudget::new()?.charge());
            let memory = ReadMemory {
                pools: bench.wire.unmapped.pools(),
                packets,
                context: Context::MaySleep,
                limit: None,
            };
            let before = bench.counted("recv_drop_no_sock");
            send(&ends.left, &[&header(sequence, LEN as u32)])?;
            let mut sent = 0;
            let arrives = ends.right_events.until(|| {
                sent += send(&ends.left, &[&payload[sent..]]).unwrap_or(0);
                reader.run(&ends.right, &connection, memory, &counters, 256);
                (bench.counted("recv_drop_no_sock") > before).then_some(())
            });
            let mut stays = false;
            counters.for_each(&mut |name, count| stays |= name == "tcp_rx_in_packets" && count > 0);
            found.push((arrives.is_ok(), stays), GFP_KERNEL)?;
        }
        drop(bench);
        assert_eq!(found[..], [(true, true), (true, false)]);
        Ok(())
    }

    #[test]
    fn strangers_keep_no_packets() -> Result {
        let bench = Bench::new(0)?;
        let tcp = transport(&bench)?;
        let packets = |of: &Connection| tcp.memory_to_read(of, Context::MaySleep).packets;
        let stranger = bench
            .connect_for(Some(UserId::PEERS))
            .map(|it| packets(&it));
        let known = bench.connect_as_lower().map(|it| packets(&it) > 0);
        drop(bench);
        assert_eq!((stranger, known), (Ok(0), Ok(true)));
        Ok(())
    }

    /// A buffer that is taken for a moment may be the last one of the pool.
    #[test]
    fn a_reader_without_room_takes_no_buffer() -> Result {
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect()?;
        let (budget, limit) = (PartialBudget::new()?, PartialLimit::of_pool(0));
        let (mut others, most) = (budget.charge(), limit.of_frame(true));
        let is_full = others.add(most, most);
        let mut reader = Reader::new(budget.charge());
        let payload = KVec::from_elem(0u8, FRAME, GFP_KERNEL)?;
        send(&ends.left, &[&header(1, 1 << 20), &payload])?;
        let on = (&bench, &connection);
        let stopped = (0, ReadStop::NoMemory);
        let waits = read(&ends, on, &mut reader, Some(limit), stopped);
        let pool = bench.wire.unmapped.pools().recv(FragmentSize::K8);
        let most_in_use = pool.stats().arena.high_water;
        drop(bench);
        assert_eq!((is_full, waits, most_in_use), (true, Ok(()), 0));
        Ok(())
    }

    #[test]
    fn an_idle_reader_keeps_no_buffer() -> Result {
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect()?;
        let mut reader = Reader::new(PartialBudget::new()?.charge());
        let in_use = || {
            let pool = bench.wire.unmapped.pools().recv(FragmentSize::K4);
            pool.stats().arena.in_use
        };
        let before = in_use();
        send(&ends.left, &[&header(1, 4), b"four"])?;
        let on = (&bench, &connection);
        let idle = read(&ends, on, &mut reader, None, (1, ReadStop::Nothing));
        let after = in_use();
        drop(bench);
        assert_eq!((idle, after), (Ok(()), before));
        Ok(())
    }

    fn transport(bench: &Bench) -> Result<Arc<Tcp>> {
        let shared = TcpShared::new(pool_shared(&bench.queue, 16 << 20)?)?;
        let tunables = Arc::new(TcpTunables::new(), GFP_KERNEL)?;
        Tcp::new(&shared, NetRef::init()?, tunables)
    }

    fn counted(tcp: &Tcp, name: &str) -> u64 {
        let mut found = 0;
        tcp.for_each_counter(&mut |other, count| {
            if other == name {
                found = count;
            }
        });
        found
    }

    /// Messages that arrive during a run of the work are left to it. Others need no work.
    #[test]
    fn the_event_of_a_socket_receives() -> Result {
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect()?;
        let tcp = transport(&bench)?;
        let deferred = || counted(&tcp, "tcp_data_ready_deferred");
        let received = || bench.counted("recv_drop_no_sock");
        let endpoint = TcpEndpoint::passive(&tcp, &connection)?;
        let endpoint = IncomingStream::new(ends.right, endpoint).accept(&connection)?;
        let (mut undeferred, mut arrives) = (false, Ok(()));
        for sequence in 1..=100 {
            let before = (deferred(), received());
            send(&ends.left, &[&header(sequence, 4), b"four"])?;
            arrives = arrives.and(eventually(|| received() > before.1));
            undeferred |= deferred() == before.0;
        }
        drop(endpoint);
        drop(bench);
        assert_eq!((arrives, undeferred), (Ok(()), true));
        Ok(())
    }

    #[test]
    fn an_event_leaves_many_frames_to_the_work() -> Result {
        const COUNT: u64 = 300;
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect()?;
        let tcp = transport(&bench)?;
        let received = || bench.counted("recv_drop_no_sock");
        let endpoint = TcpEndpoint::passive(&tcp, &connection)?;
        let endpoint = IncomingStream::new(ends.right, endpoint).accept(&connection)?;
        let before = received();
        send(&ends.left, &[&header(1, 4), b"four"])?;
        let first = eventually(|| received() == before + 1);
        let deferred = counted(&tcp, "tcp_data_ready_deferred");
        let mut bytes = KVec::new();
        for sequence in 2..=COUNT {
            bytes.extend_from_slice(&header(sequence, 0), GFP_KERNEL)?;
        }
        let sent = send(&ends.left, &[&bytes]);
        let arrives = eventually(|| received() == before + COUNT);
        let left = counted(&tcp, "tcp_data_ready_deferred") - deferred;
        let expected = bytes.len();
        drop(endpoint);
        drop(bench);
        assert_eq!((first, sent, arrives), (Ok(()), Ok(expected), Ok(())));
        assert!(left > 0);
        Ok(())
    }

    /// C RDS counts what TCP has acknowledged as delivered. At the end of a link no more arrives
    /// than that, though there is no room for a stranger.
    #[test]
    fn the_end_of_a_link_needs_no_room_for_incomplete_messages() -> Result {
        let (bench, ends) = (Bench::new(0)?, connected()?);
        let connection = bench.connect_for(Some(UserId::PEERS))?;
        let tcp = transport(&bench)?;
        let limit = tcp
            .memory_to_read(&connection, Context::MaySleep)
            .limit
            .ok_or(EINVAL)?;
        let (mut others, most) = (tcp.partial_charge(), limit.of_frame(true));
        let is_full = others.add(most, most);
        send(&ends.left, &[&header(1, 4), b"four"])?;
        let endpoint = TcpEndpoint::passive(&tcp, &connection)?;
        let endpoint = IncomingStream::new(ends.right, endpoint).accept(&connection)?;
        let waits = eventually(|| counted(&tcp, "tcp_rx_alloc_wait") > 0);
        let before = bench.counted("recv_drop_no_sock");
        drop(endpoint);
        let received = bench.counted("recv_drop_no_sock") - before;
        let lost = counted(&tcp, "tcp_drain_lost");
        drop(bench);
        assert_eq!((is_full, waits), (true, Ok(())));
        assert_eq!((received, lost), (1, 0));
        Ok(())
    }
}
