// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the acknowledgement of large messages, with a link that takes all messages.

use kernel::prelude::*;

#[kunit_tests(rds_acked)]
mod suite {
    use crate::{
        conn::{
            Connection,
            Endpoint,
            EndpointProgress,
            Node,
            QueueKind,
            RecvFrame,
            Transports,
            TxQueue, //
        },
        kapi::{
            net::FakeSocket,
            rdma::DeviceId,
            sync::{
                count_holds,
                Fifo,
                OwnedQueue, //
            }, //
        },
        kunit::transport::{
            self,
            PlainLink,
            ReadyEnd,
            WithoutMemory, //
        },
        msg::{
            FollowUp,
            Message,
            RdmaOp, //
        },
        proto::{
            faults::Admission,
            tx::Pressure,
            wire::{
                FragmentSize,
                Header, //
            }, //
        },
        recv_pool::{
            Context,
            Pools,
            Unmapped, //
        },
        socket::{
            SharedState,
            Socket, //
        }, //
    };
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
    const LEN: u32 = 1 << 20;
    const SIZE: FragmentSize = FragmentSize::K4;
    const POOL_LIMIT: usize = 64 << 20;
    /// Messages whose buffers are more than a softirq drops at once.
    const COUNT: u64 = 20;

    /// The softirq drops a bounded number of buffers. The rest is dropped soon after.
    #[test]
    fn an_acknowledgement_of_large_messages_ends_them_all() -> Result {
        let (run, dropped) = with_node(|node, queue, taker| {
            let run = acknowledge(node, queue, taker);
            (run, transport::counted(node, "send_drop_acked"))
        })?;
        assert_eq!(dropped, COUNT);
        // The last message of a batch may exceed it.
        let buffers = (LEN / SIZE.bytes()) as usize;
        let at_once = run?;
        assert!((4096..4096 + buffers).contains(&at_once));
        Ok(())
    }

    const FEW: usize = 64;
    const MANY: usize = 100 * FEW;

    /// Calls a function with a node whose only transport is a [`Taker`].
    fn with_node<R>(function: impl FnOnce(&Arc<Node>, &OwnedQueue, &Taker) -> R) -> Result<R> {
        let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
        let taker = Arc::new(
            Taker {
                unmapped: Unmapped::new(&transport::pool_shared(&queue, POOL_LIMIT)?)?,
                last: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let shared = SharedState::new(queue.clone(), 1 << 20)?;
        let transports = Transports::new().with(taker.clone());
        let node = transport::node(&shared, &transports, &queue, 10, 0)?;
        let result = function(&node, &queue, &taker);
        node.stop();
        queue.flush();
        Ok(result)
    }

    /// Calls a function with a connection on which many messages for one link are sent.
    fn with_many_sent<R>(function: impl FnOnce(&Node, &Connection, &OwnedQueue) -> R) -> Result<R> {
        with_node(|node, queue, taker| {
            let pools = taker.unmapped.pools();
            let connection = node.connection(transport::key(), None, || Ok(pools.clone()))?;
            for _ in 0..MANY {
                let keepalive = Message::keepalive(pools)?;
                connection.send(keepalive).map_err(|_| EINVAL)?;
            }
            queue.flush();
            Ok(function(node, &connection, queue))
        })?
    }

    /// Any number of messages may be meant for one link only. Few are removed in one hold of the
    /// lock when it goes down.
    #[test]
    fn messages_for_one_link_go_in_batches() -> Result {
        let (before, after, holds) = with_many_sent(|node, connection, queue| {
            let key = &connection.key;
            let before = connection.path.sent();
            let ((), holds) = count_holds(&connection.path, || {
                node.reset_connections(key.net, key.laddr, Some(key.faddr), key.tos);
                queue.flush();
            });
            (before, connection.path.sent(), holds)
        })?;
        assert_eq!((before, after), (MANY, 0));
        assert!(holds >= MANY / FEW);
        Ok(())
    }

    /// Sockets may cancel messages all the time, and each makes walks over the queue begin again.
    #[test]
    fn a_walk_that_begins_again_and_again_ends() -> Result {
        let (walked, holds) = with_many_sent(|_, connection, _| {
            count_holds(&connection.path, || {
                let mut seen = 0;
                connection
                    .path
                    .try_for_each_message(QueueKind::Sent, |message| {
                        seen += 1;
                        if seen % FEW == 0 {
                            connection.path.remove_sent(message.sequence);
                        }
                        Ok(())
                    })
            })
        })?;
        walked?;
        // The messages are passed four times, and one in 64 is removed.
        assert!((MANY / FEW..=5 * MANY / FEW).contains(&holds));
        Ok(())
    }

    /// On iWARP the memory of a write is kept until the acknowledgement. Each area of it takes as
    /// long to release as a buffer.
    #[test]
    fn areas_that_an_acknowledgement_releases_count_like_buffers() -> Result {
        const AREAS: usize = 100;
        let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
        let unmapped = Unmapped::new(&transport::pool_shared(&queue, POOL_LIMIT)?)?;
        let sk = FakeSocket::<Socket>::new()?;
        let mut counts = KVec::new();
        for is_kept in [true, false] {
            let op = transport::operation(&sk, 1, AREAS, is_kept)?;
            let how = (false, FollowUp::Message);
            let mut message = Message::of_len(unmapped.pools(), SIZE, PORT, LEN)?;
            let before = message.buffers();
            let op = RdmaOp::new(&op, Fifo::new(), how, None, Admission::default())?;
            message.ops.operation = Some(op);
            counts.push(message.buffers() - before, GFP_KERNEL)?;
        }
        assert_eq!(counts[..], [AREAS, 0]);
        Ok(())
    }

    /// Sends the messages, and receives a header that acknowledges all. Returns the number of
    /// buffers that were dropped meanwhile.
    fn acknowledge(node: &Arc<Node>, queue: &OwnedQueue, taker: &Taker) -> Result<usize> {
        let pools = taker.unmapped.pools();
        let connection = node.connection(transport::key(), None, || Ok(pools.clone()))?;
        for _ in 0..COUNT {
            let message = Message::of_len(pools, SIZE, PORT, LEN)?;
            connection.send(message).map_err(|_| EINVAL)?;
        }
        // The first message has made it connect.
        queue.flush();
        let mut frame = pools.recv(SIZE).alloc(Context::MaySleep).ok_or(ENOMEM)?;
        let header = Header {
            ack: taker.last.load(Relaxed),
            ..Header::default()
        };
        header.emit(frame.bytes_mut().first_chunk_mut().ok_or(EINVAL)?);
        let frame = RecvFrame::Dma {
            buf: &mut Some(frame),
            len: Header::LEN,
            device: DeviceId(1),
        };
        connection.receive(frame, &mut 0).map_err(|_| EINVAL)?;
        let at_once = connection.path.acked_in_run();
        queue.flush();
        Ok(at_once)
    }

    /// A transport whose endpoints are up at once.
    struct Taker {
        unmapped: Unmapped,
        /// The last message that a link took.
        last: Atomic<u64>,
    }

    impl WithoutMemory for Taker {
        fn pools(&self) -> Result<Arc<Pools>> {
            Ok(self.unmapped.pools().clone())
        }

        fn prepare(self: Arc<Self>, _: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
            let progress = Arc::new(EndpointProgress::new(), GFP_KERNEL)?;
            ReadyEnd::create(self, progress)
        }
    }

    impl PlainLink for Taker {
        fn transmit(&self, _: &Connection, queue: &mut TxQueue) {
            while let Some(first) = queue.unsent.front() {
                let (sequence, len) = (first.sequence, first.len);
                queue.state.transmit(sequence, len, Pressure::Low);
                self.last.store(sequence, Relaxed);
                queue.note_sent();
            }
        }
    }
}
