// SPDX-License-Identifier: GPL-2.0

//! What a connection needs of a transport.
//!
//! A [`Transport`] makes [`Endpoint`]s: one for each attempt to connect, whether it begins here or
//! at the peer. An endpoint reports what becomes of it through its [`EndpointProgress`], and once it is
//! established its [`Link`] carries messages.

use super::{flag::Flag, Connection, TxQueue};
use crate::kapi::{
    net::{IpBits, Net},
    pin::PinnedMemory,
    rdma::{Access, DeviceId, Pieces},
};
use crate::proto::{info::RdmaPath, keepalive::LinkActivity, rdma::Cookie, wire::FragmentSize};
use crate::recv_pool::Pools;
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// What became of an endpoint. Set from any context, also a hard interrupt, and read by the
/// connection's worker. Each but the first is set once at the most.
pub(crate) struct EndpointProgress {
    addr_unknown: Flag,
    addr_resolved: Flag,
    route_resolved: Flag,
    established: Flag,
    fault: Flag,
    rejected: Flag,
    moved: Flag,
    lost: Flag,
    ended: Atomic<bool>,
}

/// A step of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    /// The address is not known yet: see [`Endpoint::resolve_again`].
    AddrUnknown,
    AddrResolved,
    RouteResolved,
    Established,
    /// The peer has refused an operation of a program here.
    Fault,
    Rejected,
    /// The local address has left the endpoint's device.
    Moved,
    Lost,
}

impl EndpointProgress {
    pub(crate) const fn new() -> Self {
        Self {
            addr_unknown: Flag::new(),
            addr_resolved: Flag::new(),
            route_resolved: Flag::new(),
            established: Flag::new(),
            fault: Flag::new(),
            rejected: Flag::new(),
            moved: Flag::new(),
            lost: Flag::new(),
            ended: Atomic::new(false),
        }
    }

    fn flag(&self, step: Reached) -> &Flag {
        match step {
            Reached::AddrUnknown => &self.addr_unknown,
            Reached::AddrResolved => &self.addr_resolved,
            Reached::RouteResolved => &self.route_resolved,
            Reached::Established => &self.established,
            Reached::Fault => &self.fault,
            Reached::Rejected => &self.rejected,
            Reached::Moved => &self.moved,
            Reached::Lost => &self.lost,
        }
    }

    /// Notes a step. The caller then wakes the connection's worker. Any context.
    pub(crate) fn set(&self, step: Reached) {
        if matches!(step, Reached::Fault | Reached::Moved | Reached::Lost) {
            self.end();
        }
        self.flag(step).raise();
    }

    /// The endpoint is closed from now on, as it is after a step that ends it. Any context.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Returns true if the endpoint has ended: what fails now is no news. Any context.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// The next step that was not taken yet, in the order in which they can happen.
    pub(crate) fn take(&self) -> Option<Reached> {
        const ORDER: [Reached; 8] = [
            Reached::AddrUnknown,
            Reached::AddrResolved,
            Reached::RouteResolved,
            Reached::Established,
            Reached::Fault,
            Reached::Rejected,
            Reached::Moved,
            Reached::Lost,
        ];
        ORDER.into_iter().find(|step| self.flag(*step).take())
    }
}

/// One attempt to connect, and then the connection. Dropping it tears it down: when that is done,
/// nothing more arrives through it. Dropping sleeps; only who has `Connection::worker` does it.
pub(crate) trait Endpoint: Send + Sync {
    fn progress(&self) -> &EndpointProgress;

    /// Asks for the peer's address once more. Fails with ETIMEDOUT if its time is over. May sleep.
    fn resolve_again(&mut self) -> Result;

    /// Starts to resolve the route. The address has been resolved. May sleep.
    fn resolve_route(&self) -> Result;

    /// Gets ready to receive and sends the request. The route has been resolved. May sleep.
    fn connect(&mut self) -> Result;

    /// What carries messages. The endpoint is established.
    fn link(&self) -> Option<Arc<dyn Link>>;
}

/// A peer's wish to connect. Dropping it rejects it, without a reason and whether the answer finds a way or not.
pub(crate) trait Request: Send + Sync {
    /// Whether nobody waits for an answer any more. Any context.
    fn has_ended(&self) -> bool;

    /// Gets ready to receive and accepts. May sleep.
    fn accept(&mut self, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>>;

    /// Rejects, because our own request has the right of way or the connection ends: at once, or when the answer finds
    /// a way. May sleep.
    fn reject(&mut self, connection: &Connection);
}

/// What carries messages to a peer.
pub(crate) trait Link: Send + Sync {
    /// How messages are cut. Any context.
    fn fragment(&self) -> FragmentSize;

    /// What messages go through, for people to look at. Any context.
    fn path(&self) -> RdmaPath;

    /// Writes for people what messages go through, as words with a value each. Process context.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Says in the log that the connection is up. Process context.
    fn announce(&self, connection: &Connection);

    /// What tells whether the peer lives. Process context, without a lock.
    fn activity(&self) -> LinkActivity;

    /// The connection is lost. Any context.
    fn give_up(&self);

    /// Posts what waits in the queue, as far as there is room. Called with the queue locked, in any
    /// context but a hard interrupt.
    fn transmit(&self, connection: &Connection, queue: &mut TxQueue);
}

/// Memory of a program that peers may use. Dropping it ends that, in a moment; any context but a hard interrupt, without
/// a lock.
pub(crate) trait RemoteMemory: Send + Sync {
    fn cookie(&self) -> Cookie;

    /// Where it is registered. Any context.
    fn home(&self) -> Arc<dyn MrDevice>;
}

/// A device on which memory of programs is registered. What is waited for there hangs on no other device.
pub(crate) trait MrDevice: Send + Sync {
    /// Which device it is. Any context.
    fn id(&self) -> DeviceId;

    /// Waits until no peer can use memory whose registration there was dropped before. Sleeps.
    fn settle(&self);

    /// Whether the device has gone, and all that was registered there. Any context but a hard interrupt.
    fn is_gone(&self) -> bool;
}

/// Memory of a program that an operation of its own uses. Dropping it ends that, in a moment; any context but a hard
/// interrupt.
pub(crate) trait LocalMemory: Send + Sync {
    /// The operation is not known to have ended well: the device may not be through with it. Any context.
    fn poison(&self);
}

/// Who waits for the release of memory: it hears of it by being dropped, in process context.
pub(crate) trait OnRelease: Send + Sync {}

/// Memory that an operation is to use.
pub(crate) struct Mapped {
    pub(crate) memory: KBox<dyn LocalMemory>,
    pub(crate) pieces: Pieces,
    /// That a write is done does not mean that it went well: what is sent after it, and acknowledged, does.
    pub(crate) completion_is_local_only: bool,
}

/// What an operation needs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// To write to a peer.
    Write,
    /// To read from a peer.
    Read,
    /// To change a peer's memory in one go.
    Atomic,
    /// The same, with masks.
    MaskedAtomic,
}

/// A way to reach other nodes.
pub(crate) trait Transport: Send + Sync {
    /// The fragments that peers are asked for. Any context.
    fn fragment(&self) -> FragmentSize;

    /// Whether this transport serves a local address. May sleep, unless that is known.
    ///
    /// Fails with ENOMEM.
    fn claims(&self, net: Net, addr: IpBits, scope: u32) -> Result<bool>;

    /// The pools of the device that has a local address; if none has it, pools for what waits until
    /// one has. May sleep.
    ///
    /// Fails with ENOMEM.
    fn pools(&self, addr: Ipv6Addr, scope: u32) -> Result<Arc<Pools>>;

    /// Lets peers of a local address use memory of a program. Sleeps.
    ///
    /// Fails with ENODEV if no device has the address, or it goes, EMSGSIZE if the memory is too large, and as the device
    /// does.
    fn register(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>>;

    /// Up to an address that is a multiple of so many bytes, a power of two, the device of a local address takes memory of
    /// a program in one piece, for operations of its own. Fails with ENODEV if there is no device, ENOMEM. May
    /// sleep.
    fn max_contiguous_map(&self, addr: Ipv6Addr, scope: u32) -> Result<u64>;

    /// Has the device of a local address see memory of a program, for operations of its own. `then` is dropped when the
    /// memory is released. Sleeps.
    ///
    /// Fails as [`Self::register`] does, and with EOPNOTSUPP if the device cannot do what is needed.
    fn map(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        needs: OpKind,
        then: Arc<dyn OnRelease>,
    ) -> Result<Mapped>;

    /// Waits until the device of a local address has given back the memory that was dropped before. Fails with ENOMEM.
    /// Sleeps.
    fn settle_memory(&self, addr: Ipv6Addr, scope: u32) -> Result;

    /// Bytes that the pools of all devices take, and those of none. May sleep.
    fn pool_bytes(&self) -> u64;

    /// The most bytes that each pool may take. Any context.
    fn pool_limit(&self) -> usize;

    /// Gives names and values of counters of the transport's own. May sleep.
    fn for_each_counter(&self, each: &mut dyn FnMut(&'static str, u64));

    /// Calls `each` for the pools of all devices, and of none, with whose they are. Process context.
    fn for_each_pools(&self, each: &mut dyn FnMut(&dyn fmt::Display, &Pools));

    /// Creates an endpoint and starts to resolve the peer's address. May sleep.
    fn resolve(self: Arc<Self>, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>>;
}
