// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of TCP sockets of the kernel, over the loopback device, and of their reader.

use kernel::prelude::*;

#[kunit_tests(rds_tcp)]
mod suite {
    use crate::{
        conn::{
            Connection,
            Request,
            Transport, //
        },
        kapi::{
            net::{
                tcp::{
                    SendBatch,
                    TcpAddr,
                    TcpSocket,
                    TcpState, //
                },
                tcp_events::{
                    TcpEvent,
                    TcpEvents,
                    TcpRead,
                    TcpSource, //
                },
                NetRef, //
            },
            sync::Completion,
            task::UserId, //
        },
        kunit::{
            tcp_bench::Bench,
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
    use core::net::{
        Ipv4Addr,
        Ipv6Addr, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        },
        time::{
            delay::fsleep,
            Delta, //
        }, //
    };

    const HOST: Ipv6Addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    const PORT: u16 = 16386;
    const TIMEOUT_MS: u32 = 5000;

    /// The events of a socket.
    #[pin_data]
    struct Events {
        #[pin]
        happened: Completion,
        readable: Atomic<u32>,
        writable: Atomic<u32>,
        state: Atomic<u32>,
    }

    impl TcpEvents for Events {
        fn event(self: &Arc<Self>, event: TcpEvent<'_>) {
            match event {
                TcpEvent::Acceptable | TcpEvent::Readable(_) => self.readable.fetch_add(1, Relaxed),
                TcpEvent::Writable => self.writable.fetch_add(1, Relaxed),
                TcpEvent::State => self.state.fetch_add(1, Relaxed),
            };
            self.happened.signal();
        }
    }

    impl Events {
        fn new() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    happened <- Completion::new(),
                    readable: Atomic::new(0),
                    writable: Atomic::new(0),
                    state: Atomic::new(0),
                }),
                GFP_KERNEL,
            )
        }

        /// Waits for events until `found` returns something.
        fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Result<T> {
            loop {
                if let Some(found) = found() {
                    return Ok(found);
                }
                self.happened.wait(TIMEOUT_MS)?;
            }
        }
    }

    /// Two connected sockets.
    struct Ends {
        left: TcpSocket,
        left_events: Arc<Events>,
        right: TcpSocket,
        right_events: Arc<Events>,
    }

    fn connected() -> Result<Ends> {
        let (left_events, right_events) = (Events::new()?, Events::new()?);
        let accepting = Events::new()?;
        let mut listener = TcpSocket::listen(&NetRef::init()?, PORT, 4)?;
        listener.watch(accepting.clone())?;
        let mut left = TcpSocket::for_peer(&NetRef::init()?, HOST)?;
        left.watch(left_events.clone())?;
        left.connect(&TcpAddr {
            addr: HOST,
            port: PORT,
            scope: 0,
        })?;
        let mut right = accepting.until(|| listener.accept().ok().flatten())?;
        right.watch(right_events.clone())?;
        left_events.until(|| (left.state() == TcpState::Open).then_some(()))?;
        Ok(Ends {
            left,
            left_events,
            right,
            right_events,
        })
    }

    fn send(socket: &TcpSocket, pieces: &[&[u8]]) -> Result<usize> {
        let mut batch = SendBatch::new();
        for piece in pieces {
            assert!(batch.add(piece));
        }
        socket.send(&mut batch)
    }

    fn bytes(received: TcpRead) -> Option<usize> {
        match received {
            TcpRead::Bytes(count) => Some(count),
            TcpRead::Nothing | TcpRead::End => None,
        }
    }

    #[test]
    fn pieces_arrive_as_one_stream() -> Result {
        let ends = connected()?;
        assert_eq!(ends.left.peer_addr().port, PORT);
        assert_eq!(ends.right.peer_addr(), ends.left.local_addr());
        assert_eq!(ends.right.peer_addr().addr, HOST);
        assert_eq!(send(&ends.left, &[b"head", b"", b"rest"])?, 8);
        let mut to = [0; 16];
        let peeked = ends
            .right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        assert_eq!(peeked, 8);
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(8));
        assert_eq!(&to[..8], b"headrest");
        assert_eq!(ends.right.recv(&mut to), TcpRead::Nothing);
        assert!(ends.right_events.readable.load(Relaxed) > 0);
        Ok(())
    }

    #[test]
    fn a_socket_accepts_bytes_while_it_has_room() -> Result {
        let ends = connected()?;
        let chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        let mut sent = 0;
        loop {
            match send(&ends.left, &[&chunk])? {
                0 => break,
                count => sent += count,
            }
            // The peer reads nothing.
            assert!(sent < 256 << 20);
        }
        let mut to = KVec::from_elem(0u8, 64 << 10, GFP_KERNEL)?;
        let mut got = 0;
        while got < sent {
            got += ends
                .right_events
                .until(|| bytes(ends.right.recv(&mut to)))?;
        }
        assert_eq!(got, sent);
        // There is room again, and an event has said so.
        ends.left_events
            .until(|| send(&ends.left, &[b"more"]).ok().filter(|sent| *sent > 0))?;
        assert!(ends.left_events.writable.load(Relaxed) > 0);
        Ok(())
    }

    #[test]
    fn a_connection_with_unread_bytes_is_not_aborted() -> Result {
        let mut ends = connected()?;
        assert_eq!(send(&ends.left, &[b"unread"])?, 6);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        ends.right.unwatch();
        assert_eq!(ends.right.abort_if_read(), None);
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(6));
        assert!(ends.right.abort_if_read().is_some());
        // The peer gets a reset, and nothing more can be read there.
        let ended = || (ends.left.state() == TcpState::Ended).then_some(());
        ends.left_events.until(ended)?;
        assert_eq!(ends.left.recv(&mut to), TcpRead::End);
        assert!(send(&ends.left, &[b"late"]).is_err());
        Ok(())
    }

    #[test]
    fn a_closed_window_stays_closed() -> Result {
        let ends = connected()?;
        ends.right.close_window();
        let mut chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        let mut received = 0;
        for _ in 0..256 {
            send(&ends.left, &[&chunk])?;
            received += bytes(ends.right.recv(&mut chunk)).unwrap_or(0);
        }
        // 16 MiB were to be sent, and the first window is far smaller.
        assert!(received < 1 << 20);
        Ok(())
    }

    #[test]
    fn the_acknowledgement_of_tcp_is_an_event() -> Result {
        let ends = connected()?;
        let (events, mut sent) = (&ends.left_events, ends.left.snd_una());
        let before = events.writable.load(Relaxed);
        ends.left.report_acks(true);
        // An ACK that arrives before it is asked for is no event.
        for _ in 0..100 {
            assert_eq!(send(&ends.left, &[b"four"])?, 4);
            sent = sent.wrapping_add(4);
            ends.left.ask_for_acks();
            events.until(|| (ends.left.snd_una() == sent).then_some(()))?;
            if events.writable.load(Relaxed) > before {
                break;
            }
        }
        assert!(events.writable.load(Relaxed) > before);
        // The peer has answered, so it owes nothing.
        let (_, owes) = ends.left.last_ack();
        assert!(!owes);
        Ok(())
    }

    #[test]
    fn bytes_that_arrived_before_a_reset_can_be_read() -> Result {
        let ends = connected()?;
        assert_eq!(send(&ends.left, &[b"last words"])?, 10);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)))?;
        ends.left.abort();
        let ended = || (ends.right.state() == TcpState::Ended).then_some(());
        ends.right_events.until(ended)?;
        assert_eq!(ends.right.recv(&mut to), TcpRead::Bytes(10));
        assert_eq!(ends.right.recv(&mut to), TcpRead::End);
        Ok(())
    }

    #[test]
    fn connections_share_a_port() -> Result {
        let addr = TcpAddr {
            addr: HOST,
            port: PORT - 1,
            scope: 0,
        };
        let (first, second) = (
            TcpSocket::for_peer(&NetRef::init()?, HOST)?,
            TcpSocket::for_peer(&NetRef::init()?, HOST)?,
        );
        first.bind(&addr)?;
        second.bind(&addr)?;
        Ok(())
    }

    #[test]
    fn a_peer_without_room_answers() -> Result {
        let ends = connected()?;
        let chunk = KVec::from_elem(7u8, 64 << 10, GFP_KERNEL)?;
        while send(&ends.left, &[&chunk])? > 0 {}
        // TCP asks for room again and again. No event reports the answers.
        for _ in 0..3 {
            let (before, _) = ends.left.last_ack();
            let answers = (0..500).any(|_| {
                fsleep(Delta::from_millis(10));
                ends.left.last_ack().0 != before
            });
            assert!(answers);
        }
        assert_eq!(ends.left.state(), TcpState::Open);
        Ok(())
    }

    #[test]
    fn few_unread_bytes_may_be_lost() -> Result {
        let ends = connected()?;
        assert_eq!(send(&ends.left, &[b"unread"])?, 6);
        let mut to = [0; 16];
        ends.right_events
            .until(|| bytes(ends.right.peek(&mut to)).filter(|count| *count == 6))?;
        assert!(!ends.right.abort_up_to(5));
        assert!(ends.right.abort_up_to(6));
        let ended = || (ends.left.state() == TcpState::Ended).then_some(());
        ends.left_events.until(ended)
    }

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

    #[test]
    fn connecting_without_a_listener_fails() -> Result {
        let events = Events::new()?;
        let mut socket = TcpSocket::for_peer(&NetRef::init()?, HOST)?;
        socket.watch(events.clone())?;
        let peer = TcpAddr {
            addr: HOST,
            port: PORT,
            scope: 0,
        };
        socket.connect(&peer)?;
        // The reset may be there before the first look.
        let ended = || socket.state() == TcpState::Ended && events.state.load(Relaxed) > 0;
        events.until(|| ended().then_some(()))
    }
}
