// SPDX-License-Identifier: GPL-2.0

//! Bench for tests: a node with a fake device, and a connection over it.

pub(super) use crate::kunit::wait::eventually;
use crate::{
    cm::laddr::{
        AddrOwners,
        LocalAddrs, //
    },
    conn::{
        Bounds,
        Connection,
        Endpoint,
        EndpointEvent,
        EndpointProgress,
        Link,
        NextStep,
        Node,
        NodeLimits,
        Transports, //
    },
    ib_transport::{
        client::Member,
        device::DeviceUse,
        endpoint_shared::EndpointShared,
        ib::{
            Ib,
            IbShared, //
        },
        qp_context::QpContext,
        recv_ring::{
            Least,
            RecvRingPolicy, //
        },
        IbTunables, //
    },
    kapi::{
        net::NetRef,
        rdma::{
            fake::{
                self,
                FakeDevice,
                Sent, //
            },
            Client,
            IbDevice,
            Qp,
            WcStatus, //
        },
        sync::{
            new_spinlock_bh,
            OwnedQueue,
            SpinLockBh, //
        }, //
    },
    kunit::transport::{
        self,
        WithoutMemory, //
    },
    msg::Message,
    proto::{
        idle::IdleTimeouts,
        wire::{
            Flags,
            FragmentSize,
            Header, //
        }, //
    },
    recv_pool::{
        BufMut,
        Context,
        Counters,
        Limit,
        PoolShared,
        Pools, //
    },
    socket::SharedState,
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// Frames of the congestion map, which every connection sends first.
pub(super) const MAP: u32 = 2;
/// Number of sends that fit into a queue pair.
pub(super) const ROOM: u32 = 126;
/// Number of receives that are posted at first.
pub(super) const RECEIVES: u32 = 15;
/// Configured limit of each pool, in bytes.
pub(super) const POOL_LIMIT: usize = 64 << 20;
const PORT: u16 = 4000;

/// Options of a bench.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup {
    /// The module treats the device as soft-iWARP.
    pub(super) soft_iwarp: bool,
    /// Number of receives that the peer offers. 0 disables flow control.
    pub(super) credit: u32,
    /// Number of receives that are always posted.
    pub(super) min_recv_wr: u32,
    /// The device accesses all memory directly, even with `swiotlb=force`.
    pub(super) direct: bool,
    /// The driver drains queue pairs itself.
    pub(super) own_drain: bool,
    /// Maximum size of each pool of buffers, in bytes. 0: as much as the tests need.
    pub(super) pool_limit: usize,
    /// Fragments have 8 KiB, so that the map is one frame. Otherwise they have 4 KiB.
    pub(super) large: bool,
    /// Time that the device has to report operations once the peer has disconnected.
    pub(super) answer_timeout_ms: u32,
}

impl Setup {
    /// Returns the options of a bench whose buffers a test can take, see [`Bench::take_buffers`].
    pub(super) fn small_pools() -> Self {
        Self {
            pool_limit: 2 << 20,
            ..Self::default()
        }
    }
}

/// A node with the device. Fields are dropped in this order.
pub(super) struct Bench {
    pub(super) node: Arc<Node>,
    pub(super) wire: Arc<Wire>,
    member: Option<Arc<Member>>,
    pub(super) queue: Arc<OwnedQueue>,
    pub(super) workers: Arc<OwnedQueue>,
    pub(super) fake: FakeDevice,
}

impl Bench {
    pub(super) fn new(setup: Setup) -> Result<Self> {
        let fake = FakeDevice::new(setup.soft_iwarp, setup.direct)?;
        if setup.own_drain {
            fake.set_own_drain();
        }
        let queue = Arc::new(OwnedQueue::new(c"rds_kunit")?, GFP_KERNEL)?;
        let workers = Arc::new(OwnedQueue::new(c"rds_kunit_conn")?, GFP_KERNEL)?;
        let most = match setup.pool_limit {
            0 => POOL_LIMIT,
            bytes => bytes,
        };
        let most = Arc::new(Limit::new(most), GFP_KERNEL)?;
        let pool_shared = PoolShared {
            most: most.clone(),
            counters: Arc::new(Counters::new(), GFP_KERNEL)?,
            queue: queue.clone(),
        };
        let owners = AddrOwners::new()?;
        let addrs = LocalAddrs::new(NetRef::init()?, &owners)?;
        let shared = IbShared::new(
            owners,
            pool_shared,
            match setup.large {
                true => FragmentSize::K8,
                false => FragmentSize::K4,
            },
            Arc::new(IbTunables::new(most, 7), GFP_KERNEL)?,
        )?;
        let ib = Ib::of_init(&shared, NetRef::init()?, addrs)?;
        let (own, device) = (ib.clone(), fake.device().into());
        let wire = Arc::pin_init(
            pin_init!(Wire {
                ib: own,
                setup,
                device,
                up <- new_spinlock_bh!(None, "Wire::up"),
                is_cut: Atomic::new(false),
                waits: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        let node = Node::new(
            NetRef::init()?,
            SharedState::new(queue.clone(), 1 << 20)?,
            Transports::new().with(wire.clone()),
            workers.clone(),
            Arc::new(crate::conn::Tunables::new(), GFP_KERNEL)?,
            NodeLimits::of_one(Bounds {
                all: 10,
                per_peer: 10,
            })?,
            IdleTimeouts::new(0),
        )?;
        let member = ib.added(fake.device())?;
        Ok(Self {
            node,
            wire,
            member,
            queue,
            workers,
            fake,
        })
    }

    /// Returns a connection that has not tried to connect.
    pub(super) fn connection(&self) -> Result<Arc<Connection>> {
        let pools = self.pools().ok_or(ENODEV)?;
        let made = self.node.connection(transport::key(), None, || Ok(pools));
        made.map_err(|_| EINVAL)
    }

    /// Returns a connection that is up, over queue pair 1. The device has the map and a first
    /// message.
    pub(super) fn connect(&self) -> Result<Arc<Connection>> {
        let connection = self.connection()?;
        self.send(&connection, 1)?;
        let map = if self.wire.setup.large { 1 } else { MAP };
        self.await_sends(1, map + 1)?;
        // The worker may hold the send side a little longer, and would also send what comes next.
        let _ = connection.path.info();
        Ok(connection)
    }

    /// Sends messages without payload.
    pub(super) fn send(&self, connection: &Arc<Connection>, count: u32) -> Result {
        let pools = self.pools().ok_or(ENODEV)?;
        for _ in 0..count {
            let message = Message::empty(&pools, PORT, PORT)?;
            connection.send(message).map_err(|_| EINVAL)?;
        }
        Ok(())
    }

    /// Returns the pools of the device's buffers.
    pub(super) fn pools(&self) -> Option<Arc<Pools>> {
        self.wire.ib.pools_of(self.fake.device())
    }

    /// Takes all buffers for `len` bytes of payload that transmission could get.
    pub(super) fn take_buffers(&self, len: u32) -> Result<KVec<BufMut>> {
        let pools = self.pools().ok_or(ENODEV)?;
        let mut all = KVec::new();
        while let Some(frame) = pools.alloc_frame(len) {
            all.push(frame.buf, GFP_KERNEL)?;
        }
        Ok(all)
    }

    /// Lets all pools find no memory in pieces of this page order and larger ones. `u32::MAX` ends
    /// that.
    pub(super) fn refuse_from(&self, order: u32) -> Result {
        let pools = self.pools().ok_or(ENODEV)?;
        pools.named().for_each(|(_, pool)| pool.refuse_from(order));
        Ok(())
    }

    /// Returns the number of the device's buffers that are in use.
    pub(super) fn buffers(&self) -> usize {
        let Some(pools) = self.pools() else {
            return 0;
        };
        let used = |(_, pool): (_, &crate::recv_pool::Pool)| pool.stats().arena.in_use;
        pools.named().map(used).sum()
    }

    /// Returns the number of sends that a queue pair has got, if it exists.
    pub(super) fn posted(&self, qp: u32) -> Option<u32> {
        self.fake.queues(qp).map(|queues| queues.sends_posted)
    }

    /// Waits until a queue pair has got `count` sends.
    pub(super) fn await_sends(&self, qp: u32, count: u32) -> Result {
        self.fake
            .wait_until(|| self.posted(qp).is_some_and(|posted| posted >= count))
    }

    /// Waits until a queue pair is destroyed.
    pub(super) fn await_end(&self, qp: u32) -> Result {
        self.fake.wait_until(|| {
            let is_made = self.fake.last_qp() >= qp;
            is_made && self.fake.queues(qp).is_none()
        })
    }

    /// Completes sends, and waits until the module has handled that. Returns their number.
    pub(super) fn end_sends(&self, qp: u32, count: u32, status: WcStatus) -> Result<u32> {
        let ended = self.fake.end_sends(qp, count, status);
        self.fake.wait_settled(qp)?;
        Ok(ended)
    }

    /// Returns the header of the send with this index, as the peer sees it.
    pub(super) fn header(&self, qp: u32, index: u32) -> Option<Header> {
        let Sent { bytes, .. } = self.fake.sent(qp, index)?;
        Header::parse(bytes.first_chunk()?).ok()
    }

    /// Returns the sequences of all messages that a queue pair has got, without the map.
    pub(super) fn sequences(&self, qp: u32) -> Result<KVec<u64>> {
        let mut sequences = KVec::new();
        let posted = self.posted(qp).unwrap_or(0);
        for header in (0..posted).filter_map(|index| self.header(qp, index)) {
            if !header.flags.contains(Flags::CONG_BITMAP) && header.sequence != 0 {
                sequences.push(header.sequence, GFP_KERNEL)?;
            }
        }
        Ok(sequences)
    }

    /// Receives a header without a message, and waits until the module has handled it.
    pub(super) fn hear(&self, qp: u32, ack: u64, credit: u8) -> Result {
        let header = Header {
            ack,
            credit,
            ..Header::default()
        };
        self.hear_header(qp, &header)
    }

    /// Receives a message without payload for a port that nobody has, and waits until the module
    /// has handled it. The first one has sequence 1.
    pub(super) fn hear_message(&self, qp: u32, sequence: u64) -> Result {
        let header = Header {
            sequence,
            sport: PORT,
            dport: PORT,
            ..Header::default()
        };
        self.hear_header(qp, &header)
    }

    fn hear_header(&self, qp: u32, header: &Header) -> Result {
        let mut frame = [0; Header::LEN];
        header.emit(&mut frame);
        // CAST: small.
        let len = Header::LEN as u32;
        if !self.fake.receive(qp, &frame, len, WcStatus::SUCCESS) {
            return Err(ENOENT);
        }
        self.fake.wait_settled(qp)
    }

    /// Returns the value of a counter of the node.
    pub(super) fn counted(&self, counter: Counter) -> u64 {
        transport::counted(&self.node, counter.name())
    }

    /// Waits until a counter of the node has at least a value. There is no event to wait for: what
    /// has failed is tried again by a timer.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` after 30 s.
    pub(super) fn await_counted(&self, counter: Counter, least: u64) -> Result {
        eventually(|| self.counted(counter) >= least)
    }

    /// Returns the queue pair of the connection.
    pub(super) fn qp(&self) -> Option<Arc<Qp<QpContext>>> {
        self.wire.up.lock().clone()
    }

    /// Waits until a queue pair has `count` receives, even if its connection is not up; see
    /// [`Wire::waits`].
    pub(super) fn await_receives(&self, qp: u32, count: u32) -> Result {
        self.fake.wait_until(|| {
            let queues = self.fake.queues(qp);
            queues.is_some_and(|it| it.receives_posted - it.receives_ended >= count)
        })
    }

    /// Establishes the waiting connection. Later connections are established at once.
    pub(super) fn establish(&self) {
        self.wire.waits.store(false, Relaxed);
        if let Some(qp) = self.qp() {
            qp.handler().shared.note(EndpointEvent::Established);
        }
    }

    /// Resets the connection.
    pub(super) fn reset(&self, connection: &Connection) {
        let key = &connection.key;
        self.node
            .reset_connections(key.net, key.laddr, Some(key.faddr), key.tos);
    }

    /// Removes the device.
    pub(super) fn remove_device(&mut self) {
        if let Some(member) = self.member.take() {
            self.wire.ib.removed(self.fake.device(), member);
        }
    }

    /// Ends the connection and the bench. Returns how many buffers of the device are still in use.
    pub(super) fn end(self, connection: Arc<Connection>) -> usize {
        drop(connection);
        self.stop();
        self.buffers()
    }

    fn stop(&self) {
        self.wire.is_cut.store(true, Relaxed);
        self.fake.set_script(fake::Script::default());
        self.node.stop();
        let gone = self.wire.up.lock().take();
        drop(gone);
        self.queue.flush();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop();
        self.remove_device();
    }
}

/// A function that a worker calls once.
#[pin_data]
pub(super) struct Job {
    run: KBox<dyn Fn() + Send + Sync>,
    #[pin]
    work: Work<Job>,
}

kernel::impl_has_work! {
    impl HasWork<Self> for Job { self.work }
}

impl WorkItem for Job {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        (this.run)();
    }
}

impl Job {
    pub(super) fn start(queue: &OwnedQueue, run: impl Fn() + Send + Sync + 'static) -> Result {
        let run = KBox::new(run, GFP_KERNEL)?;
        let job = pin_init!(Self { run, work <- new_work!("bench::Job") });
        queue.enqueue::<_, 0>(Arc::pin_init(job, GFP_KERNEL)?);
        Ok(())
    }
}

/// Replacement for the connection manager. Each step succeeds at once.
#[pin_data]
pub(super) struct Wire {
    pub(super) ib: Arc<Ib>,
    setup: Setup,
    device: ARef<IbDevice>,
    /// The queue pair that was created last.
    #[pin]
    up: SpinLockBh<Option<Arc<Qp<QpContext>>>>,
    /// No more connections are established.
    pub(super) is_cut: Atomic<bool>,
    /// Connections wait for [`Bench::establish`].
    pub(super) waits: Atomic<bool>,
}

/// An endpoint of [`Wire`]. Fields are dropped in this order.
struct BenchEnd {
    qp: Option<Arc<Qp<QpContext>>>,
    shared: Arc<EndpointShared>,
    device: DeviceUse,
    connection: Arc<Connection>,
    wire: Arc<Wire>,
}

impl BenchEnd {
    /// Works like [`IbEndpoint::prepare`](crate::ib_transport::endpoint::IbEndpoint), without a CM
    /// id.
    fn prepare(&mut self) -> Result {
        let device = self.device.device.clone();
        let config = self.wire.ib.tunables.qp_config(&device.caps);
        let (shared, setup) = (&self.shared, &self.wire.setup);
        let controlled = setup.credit > 0;
        let connection = &self.connection;
        let context = QpContext::new(
            connection.clone(),
            shared.clone(),
            device.clone(),
            config,
            controlled,
            setup.answer_timeout_ms,
        );
        connection.set_pools(&device.pools)?;
        connection.path.begin_credits(controlled);
        let ring = RecvRingPolicy::new(
            shared.fragment(),
            config.max_recv_wr,
            Least::Wanted(setup.min_recv_wr),
            controlled,
        );
        let qp = fake::queue_pair(&device.pd, config, context, ring)?;
        self.device.set_qp(qp.clone());
        self.qp = Some(qp.clone());
        // Set before the receives are posted, because tests wait for those.
        let before = self.wire.up.lock().replace(qp.clone());
        drop(before);
        let posted = QpContext::fill(&qp, Context::MaySleep);
        posted?;
        connection.path.offer_credits();
        connection.path.take_offer(setup.credit);
        Ok(())
    }
}

impl Endpoint for BenchEnd {
    fn progress(&self) -> &EndpointProgress {
        &self.shared.progress
    }

    fn next_step(&mut self) -> Result<NextStep> {
        Err(ENODEV)
    }

    fn connect(&mut self) -> Result {
        self.prepare()?;
        if !self.wire.waits.load(Relaxed) {
            self.shared.note(EndpointEvent::Established);
        }
        Ok(())
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.qp.clone()?)
    }
}

impl Drop for BenchEnd {
    fn drop(&mut self) {
        if let Some(qp) = &self.qp {
            qp.close();
        }
    }
}

impl WithoutMemory for Wire {
    fn pools(&self) -> Result<Arc<Pools>> {
        self.ib.pools_of(&self.device).ok_or(ENODEV)
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        if self.is_cut.load(Relaxed) {
            return Err(ENODEV);
        }
        let home = self.ib.device_of_addr(&connection.key);
        let shared = EndpointShared::new(connection, self.ib.fragment, home)?;
        let end = KBox::new(
            BenchEnd {
                qp: None,
                device: self.ib.use_device(&self.device, &shared)?,
                shared,
                connection: connection.clone(),
                wire: self,
            },
            GFP_KERNEL,
        )?;
        end.shared.note(EndpointEvent::Prepared);
        Ok(end)
    }
}
