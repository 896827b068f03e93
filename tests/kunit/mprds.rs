// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the negotiation of paths with a fake TCP transport.

use kernel::prelude::*;

#[kunit_tests(rds_mprds)]
mod suite {
    use crate::{
        conn::{
            xmit::{
                self,
                FrameSink, //
            },
            ConnKey,
            Connection,
            Endpoint,
            EndpointEvent,
            EndpointProgress,
            Node,
            RecvFrame,
            Transports,
            TxQueue, //
        },
        kapi::{
            rdma::{
                OperationItem,
                PostError,
                RejectedOp,
                SendItem, //
            },
            sync::{
                new_spinlock_bh,
                Item,
                OwnedQueue,
                SpinLockBh, //
            }, //
        },
        kunit::{
            transport::{
                self,
                PlainLink,
                ReadyEnd,
                WithoutMemory, //
            },
            wait::eventually, //
        },
        msg::Message,
        proto::{
            exthdr::SPACE,
            mprds::PathCount,
            wire::{
                Flags,
                FragmentSize,
                Header,
                CONG_MAP_BYTES,
                PING_PORT,
                PROBE_PORT, //
            },
            xmit::LinkRoom, //
        },
        recv_pool::{
            Context,
            Pools,
            Unmapped, //
        },
        socket::{
            SharedState,
            TransportId, //
        }, //
    };
    use core::ops::RangeInclusive;
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// Extensions of C RDS: eight paths, a generation, and ports that have the index of the path.
    const fn of_c(generation: u8) -> [u8; SPACE] {
        [
            5, 0, 8, 6, 0, 0, 0, generation, 8, 0, 0, 0, 0, 0, 0, 0, //
        ]
    }

    fn probe(sequence: u64, generation: u8) -> Header {
        Header {
            sequence,
            sport: PROBE_PORT,
            dport: PING_PORT,
            exthdr: of_c(generation),
            ..Header::default()
        }
    }

    #[test]
    fn an_answer_has_the_number_of_paths() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        receive(&connection, &probe(1, 1))?;
        let answer = bench.answer();
        let answered = bench.counted("send_pong");
        drop(bench);
        assert_eq!(answered, 1);
        let exthdr = answer.map(|it| it.exthdr);
        assert_eq!(
            exthdr,
            Some([5, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        );
        Ok(())
    }

    /// The peer acknowledges no answer, so all of them stay in memory.
    #[test]
    fn answers_to_probes_are_limited() -> Result {
        let bench = Bench::new(0)?;
        let connection = bench.connect()?;
        for sequence in 1..=5000 {
            receive(&connection, &probe(sequence, 1))?;
        }
        let counts = (
            bench.counted("send_pong"),
            bench.counted("send_pong_dropped"),
        );
        drop(bench);
        assert_eq!(counts, (4097, 903));
        Ok(())
    }

    /// The position of a forgotten connection has the generation of the peer. So the probe of a
    /// restarted peer is no duplicate, even if it is marked as sent before.
    #[test]
    fn a_restart_is_seen_after_the_connection_was_forgotten() -> Result {
        let bench = Bench::new(1)?;
        let connection = bench.connect()?;
        receive(&connection, &probe(1, 1))?;
        // So nothing waits for the peer.
        let ack = Header {
            ack: bench.answer().ok_or(ENODEV)?.sequence,
            ..Header::default()
        };
        receive(&connection, &ack)?;
        bench.forget(&connection)?;
        let connection = bench.connect()?;
        let again = Header {
            flags: Flags::RETRANSMITTED,
            ..probe(1, 1)
        };
        receive(&connection, &again)?;
        let same = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_old_seq"),
        );
        let restarted = Header {
            exthdr: of_c(2),
            ..again
        };
        bench.forget(&connection)?;
        let connection = bench.connect()?;
        receive(&connection, &restarted)?;
        let other = (
            bench.counted("send_pong"),
            bench.counted("recv_drop_old_seq"),
        );
        drop(bench);
        assert_eq!(same, (1, 1));
        assert_eq!(other, (2, 1));
        Ok(())
    }

    /// Ports from which the suite sends.
    const PORTS: core::ops::Range<u16> = 1000..1064;

    fn answer(sequence: u64, generation: u8) -> Header {
        Header {
            sport: PING_PORT,
            dport: PROBE_PORT,
            ..probe(sequence, generation)
        }
    }

    /// Negotiates several paths. The second probe of this node, after the first answer, has the
    /// number. `numbers` are those of the probes, and the sequence numbers of the answers.
    fn negotiate(
        bench: &Bench,
        connection: &Arc<Connection>,
        count: PathCount,
        numbers: RangeInclusive<u64>,
        generation: u8,
    ) -> Result {
        for number in numbers {
            eventually(|| bench.counted("send_probe") == number)?;
            receive(connection, &answer(number, generation))?;
        }
        let paths = || (0..).take_while(|path| bench.path(connection, *path).is_some());
        eventually(|| paths().count() == usize::from(count.number()))
    }

    #[test]
    fn ports_use_several_paths_until_the_peer_restarts() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        bench.queue.flush();
        let first = connection.path.info().next_tx;
        for port in PORTS {
            let message = Message::empty(bench.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let on_first = connection.path.info().next_tx - first;
        let on_others = PORTS.len() as u64 - on_first;
        let before = bench.counted("send_moved");
        let net = connection.key.net;
        bench
            .node
            .reset_connections(net, connection.key.laddr, None, 0);
        bench.queue.flush();
        receive(&connection, &probe(3, 2))?;
        let moved = eventually(|| bench.counted("send_moved") == on_others);
        // All ports use the first path now.
        let first = connection.path.info().next_tx;
        for port in PORTS {
            let message = Message::empty(bench.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let again = connection.path.info().next_tx - first;
        drop(bench);
        assert_eq!(before, 0);
        assert!(on_first > 0 && on_others > on_first);
        assert!(moved.is_ok());
        assert!(again >= PORTS.len() as u64);
        Ok(())
    }

    /// Returns a message that is no duplicate if the numbers of the peer have begun again.
    fn again(sequence: u64) -> Header {
        Header {
            flags: Flags::RETRANSMITTED,
            sequence,
            dport: PORTS.start,
            ..Header::default()
        }
    }

    #[test]
    fn a_restarted_peer_has_new_numbers_on_all_paths() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let other = bench.path(&connection, 2).ok_or(ENODEV)?;
        let wanted = other.want_for_peer();
        bench.queue.flush();
        for sequence in [1, 9] {
            receive(&other, &again(sequence))?;
        }
        let new = bench.counted("recv_drop_old_seq");
        receive(&other, &again(5))?;
        let duplicate = bench.counted("recv_drop_old_seq");
        let net = connection.key.net;
        bench
            .node
            .reset_connections(net, connection.key.laddr, None, 0);
        bench.queue.flush();
        receive(&connection, &probe(3, 2))?;
        // The worker of the first path lets the other ones move their messages.
        for _ in 0..2 {
            bench.queue.flush();
        }
        receive(&other, &again(5))?;
        let after = bench.counted("recv_drop_old_seq");
        drop((other, connection));
        drop(bench);
        assert!(wanted);
        assert_eq!((new, duplicate, after), (0, 1, 1));
        Ok(())
    }

    /// The position of a forgotten path is kept as long as the peer runs.
    #[test]
    fn a_forgotten_path_has_new_numbers_after_a_restart() -> Result {
        let mut counts = [0; 2];
        for (generation, count) in (1..).zip(&mut counts) {
            let bench = Bench::with(1, PathCount::Two, 2)?;
            let connection = bench.connect()?;
            negotiate(&bench, &connection, PathCount::Two, 1..=2, 1)?;
            let other = bench.path(&connection, 1).ok_or(ENODEV)?;
            for sequence in [1, 9] {
                receive(&other, &again(sequence))?;
            }
            // So nothing waits for the peer.
            let ack = Header {
                ack: connection.path.info().next_tx.saturating_sub(1),
                ..Header::default()
            };
            receive(&connection, &ack)?;
            bench.forget_path(&connection, &other)?;
            let connection = bench.connect()?;
            negotiate(&bench, &connection, PathCount::Two, 3..=4, generation)?;
            let other = bench.path(&connection, 1).ok_or(ENODEV)?;
            receive(&other, &again(5))?;
            *count = bench.counted("recv_drop_old_seq");
        }
        assert_eq!(counts, [1, 0]);
        Ok(())
    }

    #[test]
    fn without_room_for_all_paths_there_is_one() -> Result {
        let bench = Bench::with(0, PathCount::Eight, 7)?;
        let connection = bench.connect()?;
        for sequence in 1..=2 {
            eventually(|| bench.counted("send_probe") == sequence)?;
            receive(&connection, &answer(sequence, 1))?;
        }
        let refused = eventually(|| bench.counted("conn_refused_limit") > 0);
        let first = connection.path.info().next_tx;
        for port in PORTS {
            let message = Message::empty(bench.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let sent = connection.path.info().next_tx - first;
        drop(bench);
        assert!(refused.is_ok());
        assert!(sent >= PORTS.len() as u64);
        Ok(())
    }

    /// A ping on another path may overtake the map that says that its port has room. Maps of C RDS
    /// may come on that path, too.
    #[test]
    fn a_ping_of_this_module_on_another_path_is_answered_without_the_map() -> Result {
        let bench = Bench::with_paths(PathCount::Eight)?;
        let connection = bench.connect()?;
        negotiate(&bench, &connection, PathCount::Eight, 1..=2, 1)?;
        let [ours, of_c] = [1, 2].map(|path| bench.path(&connection, path));
        let (ours, of_c) = (ours.ok_or(ENODEV)?, of_c.ok_or(ENODEV)?);
        let without_generation = Header {
            exthdr: [0; SPACE],
            ..Header::congestion_update(0, 1, 0)
        };
        receive_full_map(&connection, &without_generation)?;
        let is_full = connection.is_congested(PORTS.start);
        receive_full_map(&ours, &Header::congestion_update(0, 1, 1))?;
        let counts = || {
            (
                bench.counted("send_pong"),
                bench.counted("send_pong_dropped"),
            )
        };
        let ping = Header {
            sequence: 3,
            sport: PORTS.start,
            dport: PING_PORT,
            ..Header::default()
        };
        let before = counts();
        receive(&ours, &ping)?;
        let after_ours = counts();
        receive(&of_c, &ping)?;
        let after_c = counts();
        receive(&connection, &ping)?;
        let after_first = counts();
        drop(bench);
        assert!(is_full);
        assert_eq!(before, (0, 0));
        assert_eq!((after_ours, after_c, after_first), ((1, 0), (1, 1), (1, 2)));
        Ok(())
    }

    /// Passes the frame of a header to a connection, as a transport does.
    fn receive(connection: &Arc<Connection>, header: &Header) -> Result {
        receive_frame(connection, header, 0)
    }

    /// Passes a map to a connection in which all ports are full.
    fn receive_full_map(connection: &Arc<Connection>, header: &Header) -> Result {
        const SIZE: u32 = FragmentSize::K4.bytes();
        for _ in 0..CONG_MAP_BYTES / SIZE {
            receive_frame(connection, header, SIZE as usize)?;
        }
        Ok(())
    }

    /// Passes a frame with `payload` bytes, whose bits are all set.
    fn receive_frame(connection: &Arc<Connection>, header: &Header, payload: usize) -> Result {
        let pools = connection.node.transports.get(TransportId::Tcp);
        let pools = pools.ok_or(ENODEV)?.pools(connection.key.laddr, 0)?;
        let size = pools.recv(FragmentSize::K4);
        let mut frame = size.alloc(Context::MaySleep).ok_or(ENOMEM)?;
        let bytes = frame.bytes_mut();
        bytes.fill(0xff);
        header.emit(bytes.first_chunk_mut::<{ Header::LEN }>().ok_or(EINVAL)?);
        let frame = RecvFrame::Stream {
            buf: &mut Some(frame),
            len: Header::LEN.saturating_add(payload),
        };
        connection.receive(frame, &mut 0).map_err(|_| EINVAL)?;
        connection.flush_ack();
        Ok(())
    }

    /// A node that reaches its peers through [`Wire`]. It forgets an idle connection that is down,
    /// because it has room for only one.
    struct Bench {
        queue: Arc<OwnedQueue>,
        wire: Arc<Wire>,
        node: Arc<Node>,
    }

    impl Bench {
        fn new(idle_secs: u32) -> Result<Self> {
            Self::with(idle_secs, PathCount::One, 1)
        }

        fn with_paths(most: PathCount) -> Result<Self> {
            Self::with(0, most, 64)
        }

        fn with(idle_secs: u32, most: PathCount, per_peer: usize) -> Result<Self> {
            let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
            let pool_shared = transport::pool_shared(&queue, 16 << 20)?;
            let wire = try_pin_init!(Wire {
                unmapped: Unmapped::new(&pool_shared)?,
                most,
                answer <- new_spinlock_bh!(None, "rds_kunit_answer"),
                end <- new_spinlock_bh!(None, "rds_kunit_end"),
            });
            let wire = Arc::pin_init(wire, GFP_KERNEL)?;
            let shared = SharedState::new(queue.clone(), 1 << 20)?;
            let transports = Transports::new().with(wire.clone());
            let node = transport::node(&shared, &transports, &queue, per_peer, idle_secs)?;
            Ok(Self { queue, wire, node })
        }

        /// Returns a connection that is up. The peer has the lower address, so it connects by
        /// itself if it has something to send.
        fn connect(&self) -> Result<Arc<Connection>> {
            let other = transport::key();
            let key = ConnKey {
                laddr: other.faddr,
                faddr: other.laddr,
                transport: TransportId::Tcp,
                ..other
            };
            let pools = self.wire.unmapped.pools();
            let connection = self.node.connection(key, None, || Ok(pools.clone()))?;
            if !connection.want_for_peer() {
                return Err(EINVAL);
            }
            self.queue.flush();
            connection.note_first_frame(false);
            Ok(connection)
        }

        /// Ends the link, and waits until the idle connection is forgotten. After a reset the
        /// connection would come up again, and would be forgotten without its position later.
        fn forget(&self, connection: &Arc<Connection>) -> Result {
            self.forget_path(connection, connection)
        }

        /// Ends the last link, that of `first`, and waits until a path is forgotten.
        fn forget_path(&self, first: &Arc<Connection>, path: &Connection) -> Result {
            let end = self.wire.end.lock().take();
            end.ok_or(ENODEV)?.set(EndpointEvent::Lost);
            first.wake_worker();
            eventually(|| path.has_ended())
        }

        /// Returns another path of a connection.
        fn path(&self, first: &Connection, path: u8) -> Option<Arc<Connection>> {
            self.node.find_connection(&ConnKey { path, ..first.key })
        }

        /// Returns the header of the last answer.
        fn answer(&self) -> Option<Header> {
            *self.wire.answer.lock()
        }

        /// Returns the value of a counter of the node.
        fn counted(&self, name: &str) -> u64 {
            transport::counted(&self.node, name)
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.node.stop();
        }
    }

    /// A transport whose links take all frames.
    #[pin_data]
    struct Wire {
        unmapped: Unmapped,
        most: PathCount,
        #[pin]
        answer: SpinLockBh<Option<Header>>,
        /// Progress of the last endpoint.
        #[pin]
        end: SpinLockBh<Option<Arc<EndpointProgress>>>,
    }

    impl WithoutMemory for Wire {
        fn id(&self) -> TransportId {
            TransportId::Tcp
        }

        fn most_paths(&self) -> PathCount {
            self.most
        }

        fn pools(&self) -> Result<Arc<Pools>> {
            Ok(self.unmapped.pools().clone())
        }

        fn prepare(self: Arc<Self>, _: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            let progress = Arc::new(EndpointProgress::new(), GFP_KERNEL)?;
            drop(self.end.lock().replace(progress.clone()));
            ReadyEnd::create(self, progress)
        }
    }

    impl PlainLink for Wire {
        fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
            if xmit::transmit(connection, queue, || WireFrames(self)).is_err() {
                connection.note_failure("frame", EIO);
            }
        }
    }

    /// Access of a transmission to a [`Wire`].
    struct WireFrames<'a>(&'a Wire);

    impl FrameSink for WireFrames<'_> {
        fn room(&self) -> LinkRoom {
            LinkRoom {
                room: 64,
                in_flight: 0,
                report_every: 64,
                reads: None,
            }
        }

        fn fragment(&self) -> FragmentSize {
            FragmentSize::K4
        }

        fn pools(&self) -> &Pools {
            self.0.unmapped.pools()
        }

        fn awaits_first_frame(&self) -> bool {
            false
        }

        fn serves_reads(&self) -> bool {
            false
        }

        fn push(&mut self, item: SendItem, _: bool) -> Result {
            let header = item.buf.bytes().first_chunk().ok_or(EINVAL)?;
            let header = Header::parse(header).map_err(|_| EINVAL)?;
            if (header.sport, header.dport) == (PING_PORT, PROBE_PORT) {
                *self.0.answer.lock() = Some(header);
            }
            Ok(())
        }

        fn operate(&mut self, item: Item<OperationItem>) -> Result<(), RejectedOp> {
            Err((item, PostError::Never))
        }

        fn resume_later(&mut self) {}

        fn await_buffer(&mut self, _: u32) {}

        fn flush(self) -> Result {
            Ok(())
        }
    }
}
