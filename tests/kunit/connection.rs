// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of a connection with a fake transport, which forces timings that are rare on real
//! devices.

use kernel::prelude::*;

#[kunit_tests(rds_connection)]
mod suite {
    use crate::{
        conn::{
            ConnKey,
            Connection,
            Endpoint,
            EndpointEvent,
            EndpointProgress,
            Link,
            NextStep,
            Node,
            ReceiveError,
            RecvFrame,
            Request,
            Transports,
            TxQueue, //
        },
        kapi::{
            errno::Errno,
            net::Net,
            rdma::DeviceId,
            sync::{
                new_spinlock_bh,
                Completion,
                OwnedQueue,
                SpinLockBh, //
            },
            task::UserId, //
        },
        kunit::{
            transport::{
                self,
                PlainLink,
                WithoutMemory, //
            },
            wait::eventually, //
        },
        msg::Message,
        proto::{
            ib_private::Version,
            tx::Pressure,
            wire::{
                FragmentSize,
                Header,
                CONG_MAP_BYTES, //
            }, //
        },
        recv_pool::{
            BufMut,
            Context,
            Pools,
            Unmapped, //
        },
        socket::{
            SharedState,
            TransportId, //
        }, //
    };
    use core::net::Ipv6Addr;
    use kernel::{
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        }, //
    };

    const PORT: u16 = 4000;

    #[test]
    fn a_map_that_comes_while_the_queue_pair_is_closed_holds_no_sender_back() -> Result {
        let bench = Bench::new(true)?;
        let connection = bench.connect()?;
        let held_before = connection.is_congested(PORT);
        let held_by_it = deliver_map(&connection)?;
        bench.fake.is_over.store(true, Relaxed);
        bench
            .node
            .reset_connections(Net::init(), connection.key.laddr, None, 0);
        bench.queue.flush();
        let held_after = connection.is_congested(PORT);
        let (ups, late) = bench.end();
        assert_eq!((ups, late), (1, 1));
        assert_eq!((held_before, held_by_it, held_after), (false, true, false));
        Ok(())
    }

    #[test]
    fn a_map_that_comes_before_the_peer_refuses_holds_no_sender_back() -> Result {
        let bench = Bench::new(false)?;
        bench.fake.is_over.store(true, Relaxed);
        let connection = bench.connect()?;
        let held = connection.is_congested(PORT);
        let (ups, late) = bench.end();
        assert_eq!((ups, late, held), (0, 1, false));
        Ok(())
    }

    /// The CM of a peer without memory rejects in this way.
    #[test]
    fn rejections_without_data_by_this_module_are_no_refusals_of_the_version() -> Result {
        let bench = Bench::new(true)?;
        let connection = bench.connect()?;
        let proposed_after = |rejections: u32| {
            (0..rejections).for_each(|_| connection.note_rejection(&[]));
            Version::proposed(0, connection.refusals())
        };
        let to_stranger = [proposed_after(8), proposed_after(1)];
        deliver_map(&connection)?;
        bench
            .node
            .reset_connections(Net::init(), connection.key.laddr, None, 0);
        bench.queue.flush();
        let to_known = proposed_after(8);
        bench.end();
        assert_eq!(to_stranger, [Version::V3_1, Version::V4_1]);
        assert_eq!(to_known, Version::V4_1);
        Ok(())
    }

    #[test]
    fn a_map_is_queued_once_and_not_before_the_connection_is_up() -> Result {
        let bench = Bench::new(false)?;
        let down = bench.connect()?.send_congestion_map();
        bench.end();
        let bench = Bench::new(true)?;
        // The link takes nothing, so its initial map stays queued.
        let again = bench.connect()?.send_congestion_map();
        bench.end();
        assert_eq!((down, again), (false, false));
        Ok(())
    }

    #[test]
    fn a_request_that_its_peer_has_withdrawn_changes_nothing() -> Result {
        let bench = Bench::new(true)?;
        let connection = bench.connect()?;
        let taken = connection
            .request(KBox::new(Withdrawn, GFP_KERNEL)?)
            .is_ok();
        bench.queue.flush();
        let stale = bench.counted("ib_listen_closed_stale");
        let lost = bench.counted("conn_reset");
        let (ups, _) = bench.end();
        assert_eq!((taken, stale, lost, ups), (true, 1, 0, 1));
        Ok(())
    }

    #[test]
    fn a_request_that_waits_when_the_connection_ends_is_rejected() -> Result {
        let seen = Arc::pin_init(Seen::new(), GFP_KERNEL)?;
        let bench = Bench::new(true)?;
        let connection = bench.connect()?;
        let slow = |next| {
            KBox::new(
                Slow {
                    seen: seen.clone(),
                    next,
                },
                GFP_KERNEL,
            )
        };
        // The request counts as older than the connection, because the worker cannot tell.
        let late = connection.request(slow(None)?).is_ok();
        bench.queue.flush();
        let rejected = seen.rejected.load(Relaxed);
        let lost = bench.counted("conn_reset");
        let taken = connection.request(slow(Some(slow(None)?))?).is_ok();
        let waits = seen.next_waits.wait(60_000);
        bench.end();
        assert_eq!((late, rejected, lost), (true, 1, 0));
        assert_eq!((taken, waits), (true, Ok(())));
        assert_eq!(seen.rejected.load(Relaxed), 2);
        Ok(())
    }

    /// The messages are more than the softirq drops at once. The rest is dropped soon after.
    #[test]
    fn an_acknowledgement_of_many_messages_ends_them_all() -> Result {
        const COUNT: u64 = 10_000;
        let bench = Bench::new(true)?;
        bench.fake.takes.store(true, Relaxed);
        let connection = bench.connect()?;
        bench.send(&connection, COUNT - 1)?;
        deliver(&connection, 0, bench.fake.last.load(Relaxed))?;
        let at_once = connection.path.acked_in_run();
        bench.queue.flush();
        let acked = bench.counted("send_drop_acked");
        bench.end();
        assert_eq!((at_once, acked), (4096, COUNT));
        Ok(())
    }

    /// A search for messages of closed sockets passes all messages. A peer that acknowledges many
    /// does not begin one.
    #[test]
    fn many_acknowledged_messages_are_dropped_without_a_search() -> Result {
        const HALF: u64 = 5_000;
        let bench = Bench::new(true)?;
        bench.fake.takes.store(true, Relaxed);
        let connection = bench.connect()?;
        bench.send(&connection, 2 * HALF - 1)?;
        let last = bench.fake.last.load(Relaxed);
        let end_at = |ack, count| {
            deliver(&connection, 0, ack)?;
            eventually(|| bench.counted("send_drop_acked") == count)
        };
        // The work item that drops the rest of the first half runs again for the second one.
        let searches = connection.hold_searches();
        let first = end_at(last - HALF, HALF);
        let second = end_at(last, 2 * HALF);
        drop(searches);
        bench.end();
        assert_eq!((first, second), (Ok(()), Ok(())));
        Ok(())
    }

    #[test]
    fn unacknowledged_messages_of_the_last_link_are_sent_again() -> Result {
        let bench = Bench::new(true)?;
        bench.fake.takes.store(true, Relaxed);
        let connection = bench.connect()?;
        bench.send(&connection, 999)?;
        deliver(&connection, 0, bench.fake.last.load(Relaxed) - 300)?;
        let again_before = bench.fake.again.load(Relaxed);
        bench
            .node
            .reset_connections(Net::init(), connection.key.laddr, None, 0);
        // The connection may delay its next attempt a little.
        let up_again = eventually(|| bench.fake.ups.load(Relaxed) >= 2);
        let again = bench.fake.again.load(Relaxed);
        bench.send(&connection, 10)?;
        let again_after = bench.fake.again.load(Relaxed);
        let (ups, _) = bench.end();
        assert_eq!((up_again, ups), (Ok(()), 2));
        assert_eq!((again_before, again, again_after), (0, 300, 300));
        Ok(())
    }

    #[test]
    fn messages_that_are_sent_during_a_transmission_are_left_to_the_sender() -> Result {
        let bench = Bench::new(true)?;
        bench.fake.takes.store(true, Relaxed);
        let connection = bench.connect()?;
        *bench.fake.meanwhile.lock() = Some((connection.clone(), 2));
        bench.send(&connection, 1)?;
        let taken = bench.fake.taken.load(Relaxed);
        let queued = bench.counted("send_queued");
        bench.end();
        assert_eq!((taken, queued), (4, 4));
        Ok(())
    }

    /// A sender that could transmit for others forever hands that to a work item.
    #[test]
    fn a_sender_does_not_transmit_for_others_forever() -> Result {
        const COUNT: u32 = 1000;
        let bench = Bench::new(true)?;
        bench.fake.takes.store(true, Relaxed);
        let connection = bench.connect()?;
        *bench.fake.meanwhile.lock() = Some((connection.clone(), COUNT));
        bench.send(&connection, 1)?;
        // Each run of the work item takes at least one message, and queues the item again.
        for _ in 0..COUNT {
            bench.queue.flush();
        }
        let taken = bench.fake.taken.load(Relaxed);
        // If messages are left, the bench could not be dropped.
        let left = bench.fake.meanwhile.lock().take();
        drop(left);
        bench.end();
        assert_eq!(taken, COUNT + 2);
        Ok(())
    }

    /// Passes a frame of `len` bytes to a connection.
    fn receive(connection: &Arc<Connection>, buf: BufMut, len: usize) -> Result<(), ReceiveError> {
        let frame = RecvFrame::Dma {
            buf: &mut Some(buf),
            len,
            device: DeviceId(1),
        };
        connection.receive(frame, &mut 0)
    }

    #[test]
    fn the_end_of_a_namespace_leaves_others_alone() -> Result {
        let bench = Bench::new(true)?;
        let first = bench.connect()?;
        let (shared, transports) = (&bench.node.shared, &bench.node.transports);
        let node = transport::node(shared, transports, &bench.queue, 10, 0)?;
        let connect = || {
            let pools = || Ok(bench.fake.unmapped.pools().clone());
            node.connection(transport::key(), None, pools)
                .map_err(Error::from)
        };
        let second = connect()?;
        node.stop();
        let again = connect().err();
        let ended = (first.has_ended(), second.has_ended());
        // A request of a peer is not swallowed by a connection that has ended.
        let wanted = second.want_for_peer();
        let sent = bench.send(&first, 1);
        let queued = [&bench.node, &node].map(|node| transport::counted(node, "send_queued"));
        let (ups, _) = bench.end();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!((ended, wanted), ((false, true), false));
        assert_eq!((again, sent), (Some(Errno::NetDown.into()), Ok(())));
        assert_eq!((queued, ups), ([2, 0], 1));
        Ok(())
    }

    #[test]
    fn a_suspended_connection_is_empty_and_down_until_it_is_wanted_again() -> Result {
        let bench = Bench::new(true)?;
        let connection = bench.connect()?;
        let ups = || {
            bench.queue.flush();
            bench.fake.ups.load(Relaxed)
        };
        let suspended = [TransportId::Tcp, TransportId::Ib].map(|transport| -> Result<_> {
            bench.node.suspend(transport);
            Ok((ups(), bench.send(&connection, 1).map(|()| ups())?))
        });
        let dropped = bench.counted("send_pong_dropped");
        bench.end();
        assert_eq!((suspended, dropped), ([Ok((1, 1)), Ok((1, 2))], 2));
        Ok(())
    }

    /// Strangers have half of the connections at most.
    #[test]
    fn a_peer_without_a_message_either_way_is_a_stranger() -> Result {
        let bench = Bench::new(true)?;
        let peers = Some(UserId::PEERS);
        let key = |n| ConnKey {
            faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n),
            ..transport::key()
        };
        let of_peer = |n| {
            let pools = || Ok(bench.fake.unmapped.pools().clone());
            bench.node.connection(key(n), peers, pools)
        };
        let pair = [of_peer(0)?, of_peer(1)?];
        (2..32).try_for_each(|n| of_peer(n).map(drop))?;
        let _ = pair.each_ref().map(|it| it.want_for_peer());
        bench.queue.flush();
        let room = || bench.node.has_place(&key(99), peers);
        let look = || pair.each_ref().map(|it| it.look_for_message());
        let up = (look(), room());
        deliver(&pair[0], 1, 0)?;
        bench.fake.takes.store(true, Relaxed);
        bench.send(&pair[1], 1)?;
        let answered = (look(), room());
        let (ups, _) = bench.end();
        assert_eq!(ups, 2);
        assert_eq!((up, answered), (([false; 2], false), ([true; 2], true)));
        Ok(())
    }

    /// Receives a header that acknowledges all messages up to `ack`. It is a message without
    /// payload unless `sequence` is 0.
    fn deliver(connection: &Arc<Connection>, sequence: u64, ack: u64) -> Result {
        let ib = connection.node.transports.get(TransportId::Ib);
        let pools = ib.ok_or(ENODEV)?.pools(connection.key.laddr, 0)?;
        let pool = pools.recv(FragmentSize::K4);
        let mut frame = pool.alloc(Context::MaySleep).ok_or(ENOMEM)?;
        let header = Header {
            sequence,
            ack,
            sport: u16::from(sequence != 0),
            ..Header::default()
        };
        let head = frame.bytes_mut().first_chunk_mut().ok_or(EINVAL)?;
        header.emit(head);
        receive(connection, frame, Header::LEN).map_err(|_| EINVAL)
    }

    /// Counters and events of requests.
    #[pin_data]
    struct Seen {
        #[pin]
        next_waits: Completion,
        rejected: Atomic<u32>,
    }

    impl Seen {
        fn new() -> impl PinInit<Self> {
            pin_init!(Self {
                next_waits <- Completion::new(),
                rejected: Atomic::new(0),
            })
        }
    }

    /// A request whose acceptance lasts until the connection ends, while the next request arrives.
    struct Slow {
        seen: Arc<Seen>,
        next: Option<KBox<Slow>>,
    }

    impl Request for Slow {
        fn has_ended(&self) -> bool {
            false
        }

        fn accept(&mut self, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            if let Some(next) = self.next.take() {
                connection.request(next).map_err(|_| EBUSY)?;
                self.seen.next_waits.signal();
            }
            eventually(|| connection.has_ended())?;
            Err(ENODEV)
        }

        fn reject(&mut self, _: &Connection) {
            self.seen.rejected.fetch_add(1, Relaxed);
        }
    }

    /// A request whose peer no longer waits for the answer.
    struct Withdrawn;

    impl Request for Withdrawn {
        fn has_ended(&self) -> bool {
            true
        }

        fn accept(&mut self, _: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            Err(ENODEV)
        }

        fn reject(&mut self, _: &Connection) {}
    }

    /// Receives a map in which all ports are full. Returns `true` if it takes effect.
    fn deliver_map(connection: &Arc<Connection>) -> Result<bool> {
        const SIZE: FragmentSize = FragmentSize::K4;
        let ib = connection.node.transports.get(TransportId::Ib);
        let pools = ib.ok_or(ENODEV)?.pools(connection.key.laddr, 0)?;
        for _ in 0..CONG_MAP_BYTES / SIZE.bytes() {
            let mut frame = pools.recv(SIZE).alloc(Context::MaySleep).ok_or(ENOMEM)?;
            let bytes = frame.bytes_mut();
            bytes.fill(0xff);
            let header = bytes.first_chunk_mut::<{ Header::LEN }>().ok_or(EINVAL)?;
            Header::congestion_update(0, 1, 0).emit(header);
            let len = SIZE.bytes() as usize + Header::LEN;
            receive(connection, frame, len).map_err(|_| EINVAL)?;
        }
        Ok(connection.is_congested(PORT))
    }

    /// A node that reaches its peers through [`Fake`].
    struct Bench {
        queue: Arc<OwnedQueue>,
        fake: Arc<Fake>,
        node: Arc<Node>,
    }

    impl Bench {
        fn new(accepts: bool) -> Result<Self> {
            let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
            let pool_shared = transport::pool_shared(&queue, 4 << 20)?;
            let fake = try_pin_init!(Fake {
                unmapped: Unmapped::new(&pool_shared)?,
                accepts,
                is_over: Atomic::new(false),
                ups: Atomic::new(0),
                late: Atomic::new(0),
                takes: Atomic::new(false),
                taken: Atomic::new(0),
                last: Atomic::new(0),
                again: Atomic::new(0),
                meanwhile <- new_spinlock_bh!(None, "rds_kunit_meanwhile"),
            });
            let fake = Arc::pin_init(fake, GFP_KERNEL)?;
            let shared = SharedState::new(queue.clone(), 1 << 20)?;
            let transports = Transports::new().with(fake.clone());
            let node = transport::node(&shared, &transports, &queue, 10, 0)?;
            Ok(Self { queue, fake, node })
        }

        /// Ends the bench; tests call this before they assert, because a failed assertion would
        /// leak it. Returns how often the connection was up, and how many late maps held senders
        /// back.
        fn end(self) -> (u32, u32) {
            let fake = self.fake.clone();
            drop(self);
            (fake.ups.load(Relaxed), fake.late.load(Relaxed))
        }

        /// Returns the value of a counter of the node.
        fn counted(&self, name: &str) -> u64 {
            transport::counted(&self.node, name)
        }

        /// Returns a connection that has a message to send and has tried to connect.
        fn connect(&self) -> Result<Arc<Connection>> {
            let pools = self.fake.unmapped.pools();
            let connection = self
                .node
                .connection(transport::key(), None, || Ok(pools.clone()))?;
            let message = Message::empty(pools, PORT, PORT)?;
            connection.send(message).map_err(|_| EINVAL)?;
            self.queue.flush();
            Ok(connection)
        }

        /// Sends `count` messages.
        fn send(&self, connection: &Arc<Connection>, count: u64) -> Result {
            for _ in 0..count {
                let message = Message::empty(self.fake.unmapped.pools(), PORT, PORT)?;
                connection.send(message).map_err(|_| EINVAL)?;
            }
            Ok(())
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.node.stop();
        }
    }

    /// A transport without devices. Each step of an attempt succeeds at once, except the last one
    /// if the peer does not accept.
    #[pin_data]
    struct Fake {
        unmapped: Unmapped,
        accepts: bool,
        /// The current endpoint is the last one: a map arrives when it is dropped, and no other
        /// endpoint can be created.
        is_over: Atomic<bool>,
        ups: Atomic<u32>,
        /// Number of maps that held senders back when an endpoint was dropped.
        late: Atomic<u32>,
        /// The links take all messages that are queued.
        takes: Atomic<bool>,
        /// Number of messages that the links took.
        taken: Atomic<u32>,
        /// The last message that the links took.
        last: Atomic<u64>,
        /// Number of messages that a link took although an earlier one had taken them.
        again: Atomic<u32>,
        /// Each transmission sends a message on this connection, while it has the send side locked.
        /// The number is that of messages that are left.
        #[pin]
        meanwhile: SpinLockBh<Option<(Arc<Connection>, u32)>>,
    }

    impl Fake {
        /// Sends a message during a transmission.
        fn send_meanwhile(&self) {
            let mut meanwhile = self.meanwhile.lock();
            let Some((connection, left)) = meanwhile.take() else {
                return;
            };
            if left > 1 {
                *meanwhile = Some((connection.clone(), left - 1));
            }
            drop(meanwhile);
            if let Ok(message) = Message::empty(self.unmapped.pools(), PORT, PORT) {
                let _ = connection.send(message);
            }
        }
    }

    impl WithoutMemory for Fake {
        fn pools(&self) -> Result<Arc<Pools>> {
            Ok(self.unmapped.pools().clone())
        }

        fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            if self.late.load(Relaxed) > 0 {
                return Err(ENODEV);
            }
            let end = FakeEnd {
                fake: self,
                connection: connection.clone(),
                progress: EndpointProgress::new(),
                steps: 0,
            };
            // The result is set before any thread waits for it.
            end.progress.set(EndpointEvent::StepDone);
            Ok(KBox::new(end, GFP_KERNEL)?)
        }
    }

    struct FakeEnd {
        fake: Arc<Fake>,
        connection: Arc<Connection>,
        progress: EndpointProgress,
        /// Number of steps of the preparation that have ended.
        steps: u32,
    }

    impl Endpoint for FakeEnd {
        fn progress(&self) -> &EndpointProgress {
            &self.progress
        }

        fn next_step(&mut self) -> Result<NextStep> {
            self.steps += 1;
            if self.steps == 1 {
                self.progress.set(EndpointEvent::StepDone);
                return Ok(NextStep::Repeated);
            }
            self.progress.set(EndpointEvent::Prepared);
            Ok(NextStep::Begun)
        }

        fn connect(&mut self) -> Result {
            self.progress.set(if self.fake.accepts {
                EndpointEvent::Established
            } else {
                EndpointEvent::Rejected
            });
            Ok(())
        }

        fn link(&self) -> Option<Arc<dyn Link>> {
            Some(self.fake.clone())
        }
    }

    impl Drop for FakeEnd {
        fn drop(&mut self) {
            if self.fake.is_over.load(Relaxed) && deliver_map(&self.connection) == Ok(true) {
                self.fake.late.fetch_add(1, Relaxed);
            }
        }
    }

    impl PlainLink for Fake {
        fn announced(&self) {
            self.ups.fetch_add(1, Relaxed);
        }

        fn transmit(&self, _: &Connection, queue: &mut TxQueue) {
            if !self.takes.load(Relaxed) {
                return;
            }
            while let Some(first) = queue.unsent.front() {
                let (sequence, len) = (first.sequence, first.len);
                if queue.state.was_sent(sequence) {
                    self.again.fetch_add(1, Relaxed);
                } else {
                    queue.state.transmit(sequence, len, Pressure::Low);
                }
                self.last.store(sequence, Relaxed);
                self.taken.fetch_add(1, Relaxed);
                queue.note_sent();
            }
            self.send_meanwhile();
        }
    }
}
