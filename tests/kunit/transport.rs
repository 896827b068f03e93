// SPDX-License-Identifier: GPL-2.0

//! A transport without program memory for the connections of suites, its links, and its node.

use crate::{
    conn::{
        Bounds,
        ConnKey,
        Connection,
        Endpoint,
        EndpointEvent,
        EndpointProgress,
        Link,
        NextStep,
        Node,
        NodeLimits,
        Transport,
        Transports,
        Tunables,
        TxQueue, //
    },
    kapi::{
        net::{
            IpBits,
            Net,
            NetRef,
            Sock, //
        },
        sync::OwnedQueue, //
    },
    msg::{
        CompletionNotifier,
        NotifyRequest,
        Op, //
    },
    proto::{
        idle::IdleTimeouts,
        info::RdmaPath,
        keepalive::LinkActivity,
        mprds::PathCount,
        wire::FragmentSize, //
    },
    rdma_mem::LocalMemory,
    recv_pool::{
        Counters,
        Limit,
        PoolShared,
        Pools, //
    },
    socket::{
        SharedState,
        Socket,
        TransportId, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// A suite's own transport. It serves all addresses and has no program memory.
pub(crate) trait WithoutMemory: Send + Sync {
    /// Returns the kind of the transport that it stands for.
    fn id(&self) -> TransportId {
        TransportId::Ib
    }

    /// Returns the most paths of a connection.
    fn most_paths(&self) -> PathCount {
        PathCount::One
    }

    /// Returns the pools of its only device.
    fn pools(&self) -> Result<Arc<Pools>>;

    /// Creates an endpoint, which starts to prepare its request.
    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>>;
}

impl<T: WithoutMemory> Transport for T {
    fn id(&self) -> TransportId {
        WithoutMemory::id(self)
    }

    fn fragment(&self) -> FragmentSize {
        FragmentSize::K4
    }

    fn most_paths(&self) -> PathCount {
        WithoutMemory::most_paths(self)
    }

    fn claims(&self, _: Net, _: IpBits, _: u32) -> Result<bool> {
        Ok(true)
    }

    fn pools(&self, _: Ipv6Addr, _: u32) -> Result<Arc<Pools>> {
        WithoutMemory::pools(self)
    }

    fn prepare(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        WithoutMemory::prepare(self, connection)
    }
}

/// A suite's own link, which carries fragments of 4 KiB. Nothing of it is measured.
pub(crate) trait PlainLink: Send + Sync {
    /// Handles that the connection is up.
    fn announced(&self) {}

    /// Takes messages of the queue.
    fn transmit(&self, connection: &Connection, queue: &mut TxQueue);

    /// Does the same as [`Link::push`].
    fn push(&self) -> bool {
        true
    }

    /// Does the same as [`Link::push_later`].
    fn push_later(&self) {}
}

impl<T: PlainLink> Link for T {
    fn fragment(&self) -> FragmentSize {
        FragmentSize::K4
    }

    fn path(&self) -> RdmaPath {
        RdmaPath::default()
    }

    fn show(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    fn announce(&self, _: &Connection) {
        self.announced();
    }

    fn activity(&self) -> LinkActivity {
        LinkActivity::default()
    }

    fn give_up(&self) {}

    fn transmit(&self, connection: &Connection, queue: &mut TxQueue) {
        PlainLink::transmit(self, connection, queue);
    }

    fn push(&self) -> bool {
        PlainLink::push(self)
    }

    fn push_later(&self) {
        PlainLink::push_later(self);
    }
}

/// An endpoint that is up as soon as it connects.
pub(crate) struct ReadyEnd {
    link: Arc<dyn Link>,
    progress: Arc<EndpointProgress>,
}

impl ReadyEnd {
    /// Creates an endpoint with a link, which has prepared its request. The owner of
    /// `progress` can end it.
    pub(crate) fn create(
        link: Arc<dyn Link>,
        progress: Arc<EndpointProgress>,
    ) -> Result<KBox<dyn Endpoint>> {
        // The result is set before any thread waits for it.
        progress.set(EndpointEvent::StepDone);
        Ok(KBox::new(Self { link, progress }, GFP_KERNEL)?)
    }
}

impl Endpoint for ReadyEnd {
    fn progress(&self) -> &EndpointProgress {
        &self.progress
    }

    fn next_step(&mut self) -> Result<NextStep> {
        self.progress.set(EndpointEvent::Prepared);
        Ok(NextStep::Begun)
    }

    fn connect(&mut self) -> Result {
        self.progress.set(EndpointEvent::Established);
        Ok(())
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        Some(self.link.clone())
    }
}

/// Returns what pools share that take at most `most` bytes.
pub(crate) fn pool_shared(queue: &Arc<OwnedQueue>, most: usize) -> Result<PoolShared> {
    Ok(PoolShared {
        most: Arc::new(Limit::new(most), GFP_KERNEL)?,
        counters: Arc::new(Counters::new(), GFP_KERNEL)?,
        queue: queue.clone(),
    })
}

/// Creates the node of a namespace, with room for 64 connections.
pub(crate) fn node(
    shared: &Arc<SharedState>,
    transports: &Transports,
    queue: &Arc<OwnedQueue>,
    per_peer: usize,
    idle_secs: u32,
) -> Result<Arc<Node>> {
    let limits = NodeLimits::of_one(Bounds { all: 64, per_peer })?;
    Node::new(
        NetRef::init()?,
        shared.clone(),
        transports.clone(),
        queue.clone(),
        Arc::new(Tunables::new(), GFP_KERNEL)?,
        limits,
        IdleTimeouts::new(idle_secs),
    )
}

/// Returns the key of the connection of a suite.
pub(crate) fn key() -> ConnKey {
    ConnKey {
        net: Net::init(),
        laddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        faddr: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        scope: 0,
        tos: 0,
        transport: TransportId::Ib,
        path: 0,
    }
}

/// An area of local memory without content.
struct NoMemory;

impl LocalMemory for NoMemory {
    fn poison(&self) {}
}

/// Returns an operation of a socket with this number of areas of local memory, which asks for no
/// notification. `is_kept`: its memory is kept until the acknowledgement.
pub(crate) fn operation(
    sk: &Sock<Socket>,
    token: u64,
    areas: usize,
    is_kept: bool,
) -> Result<Arc<Op>> {
    let mut memory = KVVec::new();
    for _ in 0..areas {
        let area: KBox<dyn LocalMemory> = KBox::new(NoMemory, GFP_KERNEL)?;
        memory.push(area, GFP_KERNEL)?;
    }
    let wanted = NotifyRequest {
        all: false,
        errors: None,
    };
    let notifier = CompletionNotifier::new(sk, token, wanted, None)?;
    Op::new(notifier, memory, None, is_kept)
}

/// Returns the value of a counter of a node, 0 if no counter has this name.
pub(crate) fn counted(node: &Node, name: &str) -> u64 {
    let mut counters = node.stats.iter(0);
    counters
        .find(|(other, _)| *other == name)
        .map_or(0, |(_, value)| value)
}
