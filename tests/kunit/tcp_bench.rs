// SPDX-License-Identifier: GPL-2.0

//! A node with a fake TCP transport, and the frames of its peer, for the suites about paths.

use super::{
    transport::{
        self,
        PlainLink,
        ReadyEnd,
        WithoutMemory, //
    },
    wait::eventually, //
};
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
        Link,
        NextStep,
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
        },
        task::UserId, //
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
use core::{
    net::Ipv6Addr,
    ops::RangeInclusive, //
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

/// Maximum number of paths.
const PATHS: usize = PathCount::Eight.number() as usize;

/// Extensions of C RDS: eight paths, a generation, and ports that have the index of the path.
pub(crate) const fn of_c(generation: u8) -> [u8; SPACE] {
    [
        5, 0, 8, 6, 0, 0, 0, generation, 8, 0, 0, 0, 0, 0, 0, 0, //
    ]
}

pub(crate) fn probe(sequence: u64, generation: u8) -> Header {
    Header {
        sequence,
        sport: PROBE_PORT,
        dport: PING_PORT,
        exthdr: of_c(generation),
        ..Header::default()
    }
}

/// Ports from which the suite sends.
pub(crate) const PORTS: core::ops::Range<u16> = 1000..1064;

pub(crate) fn answer(sequence: u64, generation: u8) -> Header {
    Header {
        sport: PING_PORT,
        dport: PROBE_PORT,
        ..probe(sequence, generation)
    }
}

/// Returns a message that is no duplicate if the numbers of the peer have begun again.
pub(crate) fn again(sequence: u64) -> Header {
    Header {
        flags: Flags::RETRANSMITTED,
        sequence,
        dport: PORTS.start,
        ..Header::default()
    }
}

/// Waits until this node has sent `number` probes, and passes an answer to it.
pub(crate) fn answer_probe(
    bench: &Bench,
    connection: &Arc<Connection>,
    number: u64,
    answer: &Header,
) -> Result {
    eventually(|| bench.counted("send_probe") == number)?;
    receive(connection, answer)
}

/// Returns a connection that is up, to C RDS with the higher address and several paths.
pub(crate) fn connect_to_higher(bench: &Bench) -> Result<Arc<Connection>> {
    let connection = bench.connect_as_lower()?;
    receive(&connection, &probe(1, 1))?;
    for number in 1..=2 {
        answer_probe(bench, &connection, number, &answer(1 + number, 1))?;
    }
    Ok(connection)
}

/// Negotiates several paths. The second probe of this node, after the first answer, has the
/// number. `numbers` are those of the probes, and the sequence numbers of the answers.
pub(crate) fn negotiate(
    bench: &Bench,
    connection: &Arc<Connection>,
    count: PathCount,
    numbers: RangeInclusive<u64>,
    generation: u8,
) -> Result {
    for number in numbers {
        answer_probe(bench, connection, number, &answer(number, generation))?;
    }
    let paths = || (0..).take_while(|path| bench.path(connection, *path).is_some());
    eventually(|| paths().count() == usize::from(count.number()))
}

/// Extensions of a peer without generations.
pub(crate) const fn without_generation(paths: u8) -> [u8; SPACE] {
    [
        5, 0, paths, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    ]
}

/// Passes the frame of a header to a connection, as a transport does.
pub(crate) fn receive(connection: &Arc<Connection>, header: &Header) -> Result {
    receive_frame(connection, header, 0)
}

/// Acknowledges all messages of a path, so that nothing waits for the peer.
pub(crate) fn acknowledge_all(path: &Arc<Connection>) -> Result {
    let ack = Header {
        ack: path.path.info().next_tx.saturating_sub(1),
        ..Header::default()
    };
    receive(path, &ack)
}

/// Passes a map to a connection in which all ports are full.
pub(crate) fn receive_full_map(connection: &Arc<Connection>, header: &Header) -> Result {
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
pub(crate) struct Bench {
    pub(crate) queue: Arc<OwnedQueue>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) node: Arc<Node>,
}

impl Bench {
    pub(crate) fn new(idle_secs: u32) -> Result<Self> {
        Self::with(idle_secs, PathCount::One, 1)
    }

    pub(crate) fn with_paths(most: PathCount) -> Result<Self> {
        Self::with(0, most, 64)
    }

    pub(crate) fn with(idle_secs: u32, most: PathCount, per_peer: usize) -> Result<Self> {
        let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
        let pool_shared = transport::pool_shared(&queue, 16 << 20)?;
        let wire = try_pin_init!(Wire {
            unmapped: Unmapped::new(&pool_shared)?,
            most: Atomic::new(0),
            answer <- new_spinlock_bh!(None, "rds_kunit_answer"),
            ends <- new_spinlock_bh!(<[Ends; PATHS]>::default(), "rds_kunit_ends"),
            is_slow: Atomic::new(false),
            pushed: Atomic::new(0),
            pushed_later: Atomic::new(0),
            left_to_caller: Atomic::new(0),
            transmissions: Atomic::new(0),
            is_busy: Atomic::new(false),
            asks <- new_spinlock_bh!(None, "rds_kunit_asks"),
        });
        let wire = Arc::pin_init(wire, GFP_KERNEL)?;
        wire.set_most(most);
        let shared = SharedState::new(queue.clone(), 1 << 20)?;
        let transports = Transports::new().with(wire.clone());
        let node = transport::node(&shared, &transports, &queue, per_peer, idle_secs)?;
        Ok(Self { queue, wire, node })
    }

    /// Returns a connection that is up. The peer has the lower address, so it connects by
    /// itself if it has something to send.
    pub(crate) fn connect(&self) -> Result<Arc<Connection>> {
        self.connect_for(None)
    }

    /// Returns the same connection, which a program of `user` needed first.
    pub(crate) fn connect_for(&self, user: Option<UserId>) -> Result<Arc<Connection>> {
        let other = transport::key();
        let key = ConnKey {
            laddr: other.faddr,
            faddr: other.laddr,
            ..other
        };
        self.connect_by(key, user)
    }

    /// Returns a connection that is up. The peer has the higher address.
    pub(crate) fn connect_as_lower(&self) -> Result<Arc<Connection>> {
        self.connect_by(transport::key(), None)
    }

    fn connect_by(&self, key: ConnKey, user: Option<UserId>) -> Result<Arc<Connection>> {
        let key = ConnKey {
            transport: TransportId::Tcp,
            ..key
        };
        let pools = self.wire.unmapped.pools();
        let connection = loop {
            let connection = self.node.connection(key, user, || Ok(pools.clone()))?;
            // One that is forgotten at this moment is not found again.
            if connection.want_for_peer() {
                break connection;
            }
        };
        self.queue.flush();
        connection.note_first_frame(true);
        Ok(connection)
    }

    /// Returns an unused connection to another peer.
    pub(crate) fn to_another_peer(&self, connection: &Connection) -> Result<Arc<Connection>> {
        let faddr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3);
        let key = ConnKey {
            faddr,
            ..connection.key
        };
        self.unused(key, None)
    }

    /// Returns an unused connection to the same peer.
    pub(crate) fn another(&self, connection: &Connection) -> Result<Arc<Connection>> {
        self.another_for(connection, None)
    }

    /// Returns the same connection, which a program of `user` needed first.
    pub(crate) fn another_for(
        &self,
        connection: &Connection,
        user: Option<UserId>,
    ) -> Result<Arc<Connection>> {
        let key = ConnKey {
            tos: 1,
            ..connection.key
        };
        self.unused(key, user)
    }

    fn unused(&self, key: ConnKey, user: Option<UserId>) -> Result<Arc<Connection>> {
        let pools = self.wire.unmapped.pools();
        Ok(self.node.connection(key, user, || Ok(pools.clone()))?)
    }

    /// Ends the link, and waits until the idle connection is forgotten. After a reset the
    /// connection would come up again, and would be forgotten without its position later.
    pub(crate) fn forget(&self, connection: &Arc<Connection>) -> Result {
        self.forget_path(connection, connection)
    }

    /// Ends the last link, that of `first`, and waits until a path is forgotten.
    pub(crate) fn forget_path(&self, first: &Arc<Connection>, path: &Connection) -> Result {
        self.end_link(first)?;
        eventually(|| path.has_ended())
    }

    /// Ends the link of a path.
    pub(crate) fn end_link(&self, path: &Arc<Connection>) -> Result {
        self.report(path, EndpointEvent::Lost)
    }

    /// Reports an event of the last endpoint of a path.
    pub(crate) fn report(&self, path: &Arc<Connection>, event: EndpointEvent) -> Result {
        let ends = self.wire.ends.lock();
        let end = ends.get(usize::from(path.key.path));
        let end = end.and_then(|end| end.progress.clone());
        drop(ends);
        end.ok_or(ENODEV)?.set(event);
        path.wake_worker();
        Ok(())
    }

    /// Returns the number of endpoints that a path has had.
    pub(crate) fn prepared(&self, path: &Connection) -> u32 {
        self.endpoints(path.key.path)
    }

    /// Returns the number of endpoints that the path with an index has had.
    pub(crate) fn endpoints(&self, path: u8) -> u32 {
        let ends = self.wire.ends.lock();
        ends.get(usize::from(path)).map_or(0, |end| end.count)
    }

    /// Returns the number of frames of congestion maps that a path has sent.
    pub(crate) fn map_frames(&self, path: u8) -> u32 {
        let ends = self.wire.ends.lock();
        ends.get(usize::from(path)).map_or(0, |end| end.map_frames)
    }

    /// Sends a message on a path, whatever its port is.
    pub(crate) fn send(&self, path: &Arc<Connection>) -> Result {
        let message = Message::empty(self.wire.unmapped.pools(), PORTS.start, PORTS.start)?;
        path.send(message).map_err(|_| EINVAL)
    }

    /// Sends a message from each port. Returns the number of paths that they use.
    pub(crate) fn used_paths(&self, connection: &Arc<Connection>) -> Result<usize> {
        let next = || -> [u64; PATHS] {
            core::array::from_fn(|path| {
                let path = self.path(connection, path as u8);
                path.map_or(0, |it| it.path.info().next_tx)
            })
        };
        let before = next();
        for port in PORTS {
            let message = Message::empty(self.wire.unmapped.pools(), port, port)?;
            connection.send_by_port(message).map_err(|_| EINVAL)?;
        }
        let pairs = before.iter().zip(next());
        Ok(pairs.filter(|(old, new)| *old != new).count())
    }

    /// Returns another path of a connection.
    pub(crate) fn path(&self, first: &Connection, path: u8) -> Option<Arc<Connection>> {
        self.node.find_connection(&ConnKey { path, ..first.key })
    }

    /// Returns the header of the last answer.
    pub(crate) fn answer(&self) -> Option<Header> {
        *self.wire.answer.lock()
    }

    /// Returns the value of a counter of the node.
    pub(crate) fn counted(&self, name: &str) -> u64 {
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
pub(crate) struct Wire {
    pub(crate) unmapped: Unmapped,
    /// Most paths of a new connection, see [`Self::set_most`].
    most: Atomic<u32>,
    #[pin]
    answer: SpinLockBh<Option<Header>>,
    /// New endpoints are not established.
    pub(crate) is_slow: Atomic<bool>,
    pushed: Atomic<u32>,
    pushed_later: Atomic<u32>,
    /// Transmissions whose caller pushes.
    pub(crate) left_to_caller: Atomic<u32>,
    pub(crate) transmissions: Atomic<u32>,
    /// Another context uses each stream.
    pub(crate) is_busy: Atomic<bool>,
    /// Path for which another context asks for a transmission during the next one.
    #[pin]
    pub(crate) asks: SpinLockBh<Option<Arc<Connection>>>,
    /// Endpoints of each path.
    #[pin]
    ends: SpinLockBh<[Ends; PATHS]>,
}

/// The endpoints of a path.
#[derive(Default)]
struct Ends {
    count: u32,
    /// Frames of congestion maps that the path has sent.
    map_frames: u32,
    /// Progress of the last one.
    progress: Option<Arc<EndpointProgress>>,
}

impl Wire {
    /// Returns the numbers of calls of `push` and `push_later`.
    pub(crate) fn pushes(&self) -> (u32, u32) {
        (self.pushed.load(Relaxed), self.pushed_later.load(Relaxed))
    }

    /// Sets the most paths of a new connection.
    pub(crate) fn set_most(&self, most: PathCount) {
        self.most.store(most.number().into(), Relaxed);
    }
}

impl WithoutMemory for Wire {
    fn id(&self) -> TransportId {
        TransportId::Tcp
    }

    fn most_paths(&self) -> PathCount {
        PathCount::at_most(self.most.load(Relaxed) as u16)
    }

    fn pools(&self) -> Result<Arc<Pools>> {
        Ok(self.unmapped.pools().clone())
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        let progress = Arc::new(EndpointProgress::new(), GFP_KERNEL)?;
        let mut ends = self.ends.lock();
        let end = ends.get_mut(usize::from(connection.key.path));
        let end = end.ok_or(EINVAL)?;
        end.count = end.count.saturating_add(1);
        let last = end.progress.replace(progress.clone());
        drop(ends);
        drop(last);
        let is_slow = self.is_slow.load(Relaxed);
        let end = ReadyEnd::create(self, progress)?;
        match is_slow {
            true => Ok(KBox::new(SlowEnd(end), GFP_KERNEL)?),
            false => Ok(end),
        }
    }
}

/// An endpoint that waits for the answer of its peer.
struct SlowEnd(KBox<dyn Endpoint>);

impl Endpoint for SlowEnd {
    fn progress(&self) -> &EndpointProgress {
        self.0.progress()
    }

    fn next_step(&mut self) -> Result<NextStep> {
        self.0.next_step()
    }

    fn connect(&mut self) -> Result {
        Ok(())
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        self.0.link()
    }
}

impl PlainLink for Wire {
    fn push(&self) -> bool {
        self.pushed.fetch_add(1, Relaxed);
        !self.is_busy.load(Relaxed)
    }

    fn push_later(&self) {
        self.pushed_later.fetch_add(1, Relaxed);
    }

    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        let asks = self.asks.lock().take();
        if let Some(path) = asks {
            path.resume();
        }
        self.transmissions.fetch_add(1, Relaxed);
        if queue.caller_pushes {
            self.left_to_caller.fetch_add(1, Relaxed);
        }
        let frames = || WireFrames(self, connection.key.path);
        if xmit::transmit(connection, queue, frames).is_err() {
            connection.note_failure("frame", EIO);
        }
    }
}

/// Access of a transmission on a path to a [`Wire`].
struct WireFrames<'a>(&'a Wire, u8);

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
        if header.flags.contains(Flags::CONG_BITMAP) {
            if let Some(end) = self.0.ends.lock().get_mut(usize::from(self.1)) {
                end.map_frames = end.map_frames.saturating_add(1);
            }
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
