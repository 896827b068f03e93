// SPDX-License-Identifier: GPL-2.0

//! Interface between a connection and its transport.
//!
//! A [`Transport`] makes one [`Endpoint`] for each attempt to connect, started locally or by the
//! peer. An endpoint reports its events through its [`EndpointProgress`]. Once it is established
//! its [`Link`] carries messages.

use super::{
    event_mask::EventMask,
    key::ConnKey,
    tx_queue::TxQueue,
    Connection,
    Node, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::{
            IpBits,
            Net, //
        }, //
    },
    proto::{
        info::{
            QueuePair,
            RdmaPath,
            TcpProgress, //
        },
        keepalive::LinkActivity,
        mprds::PathCount,
        wire::FragmentSize, //
    },
    rdma_mem::RdmaOps,
    recv_pool::{
        PoolUsage,
        Pools, //
    },
    socket::TransportId, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// Events of an endpoint. Any context sets them, also hard interrupt; the connection's worker takes
/// them. Each one except the first is set at most once.
pub(crate) struct EndpointProgress(EventMask);

/// An event of an endpoint. They are taken in this order, in which they can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndpointEvent {
    /// A step of the preparation has ended, and is not the last one: see [`Endpoint::next_step`].
    StepDone,
    /// The request can be sent: see [`Endpoint::connect`].
    Prepared,
    Established,
    /// The peer has refused an operation of a local program.
    Fault,
    Rejected,
    /// The local address has left the endpoint's device.
    Moved,
    Lost,
}

impl EndpointEvent {
    const ORDER: [Self; 7] = [
        Self::StepDone,
        Self::Prepared,
        Self::Established,
        Self::Fault,
        Self::Rejected,
        Self::Moved,
        Self::Lost,
    ];

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl EndpointProgress {
    /// Set for good when the endpoint has ended.
    const ENDED: u32 = 1 << 31;

    pub(crate) const fn new() -> Self {
        Self(EventMask::new())
    }

    /// Records an event. The caller then wakes the connection's worker.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn set(&self, event: EndpointEvent) {
        let ended = match event {
            EndpointEvent::Fault | EndpointEvent::Moved | EndpointEvent::Lost => Self::ENDED,
            _ => 0,
        };
        self.0.set(event.bit() | ended);
    }

    /// Marks the endpoint as closed, like an event that ends it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn end(&self) {
        self.0.set(Self::ENDED);
    }

    /// Returns `true` if the endpoint has ended. Later failures are expected then.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has(Self::ENDED)
    }

    /// Takes the record that the peer has refused an operation. Returns `false` if there is none.
    pub(super) fn take_fault(&self) -> bool {
        self.0.take(EndpointEvent::Fault.bit())
    }

    /// Takes the next recorded event.
    pub(super) fn take(&self) -> Option<EndpointEvent> {
        let mut order = EndpointEvent::ORDER.into_iter();
        order.find(|event| self.0.take(event.bit()))
    }
}

/// Result of [`Endpoint::next_step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextStep {
    /// Another step has begun, which has its own time limit.
    Begun,
    /// The step has begun again, within its time limit.
    Repeated,
    /// The step has failed because the peer cannot be found. The endpoint has traced the reason.
    Failed,
}

/// One attempt to connect, and the connection that it becomes.
///
/// The request may need steps in advance, which depend on the transport: RDMA resolves the peer's
/// address and then the route. The endpoint reports the end of each one.
///
/// Dropping an endpoint tears it down. When that is done nothing more arrives through it. Dropping
/// sleeps, and only the owner of `Path::worker` does it.
pub(crate) trait Endpoint: Send + Sync {
    fn progress(&self) -> &EndpointProgress;

    /// Continues to prepare the request, after [`EndpointEvent::StepDone`].
    ///
    /// # Errors
    ///
    /// Those of the transport. The attempt has failed.
    ///
    /// # Context
    ///
    /// May sleep.
    fn next_step(&mut self) -> Result<NextStep>;

    /// Makes the endpoint ready to receive and sends the connection request, after
    /// [`EndpointEvent::Prepared`].
    ///
    /// # Context
    ///
    /// May sleep.
    fn connect(&mut self) -> Result;

    /// Returns the link of an established endpoint.
    fn link(&self) -> Option<Arc<dyn Link>>;
}

/// A connection request of the peer. Dropping it rejects it, but not for its version, and without
/// a guarantee that the answer can be sent.
pub(crate) trait Request: Send + Sync {
    /// Returns `true` if the peer no longer waits for an answer.
    ///
    /// # Context
    ///
    /// Any context.
    fn has_ended(&self) -> bool;

    /// Prepares receives and accepts the request.
    ///
    /// # Context
    ///
    /// May sleep.
    fn accept(&mut self, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>>;

    /// Rejects the request because the local request has priority or the connection ends. The
    /// answer is sent at once, or as soon as that is possible.
    ///
    /// # Context
    ///
    /// May sleep.
    fn reject(&mut self, connection: &Connection);
}

/// An established carrier of messages to a peer.
pub(crate) trait Link: Send + Sync {
    /// Returns the fragment size.
    ///
    /// # Context
    ///
    /// Any context.
    fn fragment(&self) -> FragmentSize;

    /// Returns the path for the information tables.
    ///
    /// # Context
    ///
    /// Any context.
    fn path(&self) -> RdmaPath;

    /// Returns the queue pair. `None` once it is closed, and on other transports than RDMA.
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    fn queue_pair(&self) -> Option<QueuePair> {
        None
    }

    /// Returns the CPU that processed the last completions or packets, if it is known.
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    fn cpu(&self) -> Option<u32> {
        self.queue_pair()?.cpu
    }

    /// Returns the progress of a connection over TCP. `None` on other transports.
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    fn tcp_progress(&self) -> Option<TcpProgress> {
        None
    }

    /// Writes the state of the link, without its CPU, as `name=value` words for people.
    ///
    /// # Context
    ///
    /// Process context.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Logs that the connection is up.
    ///
    /// # Context
    ///
    /// Process context.
    fn announce(&self, connection: &Connection);

    /// Returns signs of activity of the peer.
    ///
    /// # Context
    ///
    /// Process context, without a lock.
    fn activity(&self) -> LinkActivity;

    /// Ends the link; the connection counts as lost.
    ///
    /// # Context
    ///
    /// Any context.
    fn give_up(&self);

    /// Waits until the device has reported the operations in progress, if it may still do so after
    /// the peer has gone. Their failures are events of the endpoint.
    ///
    /// # Context
    ///
    /// Process context, without a spinlock. Sleeps.
    fn await_answers(&self) {}

    /// Sends what a stream has staged in transmissions with [`TxQueue::caller_pushes`]. Returns
    /// `false` if another context uses the stream. Then [`Self::push_later`] is due.
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    fn push(&self) -> bool {
        true
    }

    /// Has the work of the stream send what is staged.
    ///
    /// # Context
    ///
    /// Any context, with the send side of the path locked and this link in place.
    fn push_later(&self) {}

    /// Posts what waits in the queue, as far as there is room. Nothing if the endpoint has ended.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, with `Path::tx` held.
    fn transmit(&self, connection: &Connection, queue: &mut TxQueue);
}

/// A transport: a way to other sockets.
///
/// The methods that have an implementation here are those of a transport to other nodes, with
/// connections. The loop transport does without them.
pub(crate) trait Transport: Send + Sync {
    /// Returns the identity of the transport. Each transport of a node has its own.
    ///
    /// # Context
    ///
    /// Any context.
    fn id(&self) -> TransportId;

    /// Returns `true` if this transport serves a local address.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep, unless the answer is cached.
    fn claims(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool>;

    /// Notes that a socket of the node is about to be bound to an address of this transport.
    ///
    /// # Context
    ///
    /// May sleep.
    fn begin_use(self: Arc<Self>, _node: &Arc<Node>) {}

    /// Notes that such a socket was closed, or not bound.
    ///
    /// # Context
    ///
    /// May sleep.
    fn end_use(self: Arc<Self>) {}

    /// Returns the fragment size to propose to peers.
    ///
    /// # Context
    ///
    /// Any context.
    fn fragment(&self) -> FragmentSize {
        FragmentSize::default()
    }

    /// Returns the most paths of a new connection.
    ///
    /// # Context
    ///
    /// Any context.
    fn most_paths(&self) -> PathCount {
        PathCount::One
    }

    /// Returns the pools of the device that has a local address. If no device has it, returns pools
    /// for messages that wait until one does.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH` if the transport does not reach other nodes.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn pools(&self, _addr: Ipv6Addr, _scope: u32) -> Result<Arc<Pools>> {
        Err(Errno::NetUnreachable.into())
    }

    /// Returns the RDMA operations, if the transport has them.
    ///
    /// # Context
    ///
    /// Any context.
    fn rdma(&self) -> Option<&dyn RdmaOps> {
        None
    }

    /// Adds the memory of all pools, including those without a device.
    ///
    /// # Context
    ///
    /// May sleep.
    fn add_pools(&self, _pool_usage: &mut PoolUsage) {}

    /// Returns the maximum size of each pool, from which shares of users follow, in bytes.
    ///
    /// # Context
    ///
    /// Any context.
    fn pool_limit(&self) -> usize {
        usize::MAX
    }

    /// Calls a function with the name and value of each counter of the transport.
    ///
    /// # Context
    ///
    /// May sleep.
    fn for_each_counter(&self, _each: &mut dyn FnMut(&'static str, u64)) {}

    /// Calls a function with the owner's name and the pools, for each device and for those without
    /// one.
    ///
    /// # Context
    ///
    /// Process context.
    fn for_each_pools(&self, _each: &mut dyn FnMut(&dyn fmt::Display, &Pools)) {}

    /// Counts and logs that a connection was forgotten whose peer may have something to send, and
    /// may not ask for another one.
    ///
    /// # Context
    ///
    /// Process context.
    fn lose_request(&self, _key: &ConnKey) {}

    /// Creates an endpoint, which starts to prepare its connection request.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH` if the transport does not reach other nodes.
    /// - Those of the transport.
    ///
    /// # Context
    ///
    /// May sleep.
    fn prepare(self: Arc<Self>, _connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        Err(Errno::NetUnreachable.into())
    }
}
