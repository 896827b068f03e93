// SPDX-License-Identifier: GPL-2.0

//! The connection between two addresses. All their sockets share it.
//!
//! A connection outlives its endpoints. Messages stay queued here until the peer has acknowledged
//! them, and sequence numbers continue after a reconnect.

use super::{
    fault_limiter::FaultLimiter,
    key::ConnKey,
    path::Path,
    path_set::PathSet,
    quota::QuotaCharge,
    Node, //
};
use crate::{
    cong::Remote,
    kapi::{
        net::SendMsg,
        print::LogLimit,
        sync::{
            AppendOnlyCell,
            Item, //
        },
        task::UserId,
        time, //
    },
    msg::{
        Message,
        MsgBuffers,
        MsgOps, //
    },
    proto::{
        ib_private::{
            Refusals,
            Rejection, //
        },
        mprds::{
            Mprds,
            PathCount, //
        },
        path_history::DropReason,
        wire::FragmentSize, //
    },
    recv_pool::Pools,
    socket::{
        SndbufCharge,
        TransportId,
        Waiters, //
    },
    stats::Counter,
    trace, //
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
    workqueue::{
        DelayedWork,
        Work, //
    }, //
};

/// The other paths of a connection.
pub(super) type Paths = PathSet<Arc<Connection>>;

/// A connection, see the module documentation.
///
/// # Context
///
/// Methods without this section may be called in any context except hard interrupt. Those that only
/// trace, or load or store an atomic, may be called in any context.
#[pin_data]
pub(crate) struct Connection {
    pub(crate) key: ConnKey,
    pub(crate) node: Arc<Node>,
    /// User whose program first needed the connection, or [`UserId::PEERS`] if a peer over TCP did.
    /// `None` if another peer did.
    pub(super) creator: Option<UserId>,
    /// Charge to a limit that the node shares with others.
    pub(super) quota_charge: Option<QuotaCharge>,
    /// Generation number that notifies the peer of a restart of the local sequence numbers. They
    /// restart when the node does, or after an earlier connection was forgotten.
    pub(crate) generation: u32,
    /// Source of memory for messages: the pools of the last endpoint's device.
    #[pin]
    pools: AppendOnlyCell<Pools>,
    /// The peer's congested ports. That of the first path counts, as do its waiters.
    #[pin]
    pub(super) remote: Remote,
    /// Senders that wait for a congested port.
    #[pin]
    pub(crate) waiters: Waiters,
    /// Queues and link of the path.
    #[pin]
    pub(crate) path: Path,
    /// The first path to the peer. `None` if this is it.
    pub(super) first: Option<Arc<Connection>>,
    /// The other paths, on the first one if there may be several.
    pub(super) paths: Option<Pin<KBox<Paths>>>,
    /// [`Refusals`] of local requests since the connection was up, as their number.
    pub(super) refusals: Atomic<u32>,
    /// Users whose operations the peer has refused.
    #[pin]
    pub(crate) fault_limiter: FaultLimiter,
    /// Rate limit of log messages about the connection.
    pub(crate) log_limit: LogLimit,
    #[pin]
    pub(super) work: Work<Connection, 0>,
    #[pin]
    pub(super) timer: DelayedWork<Connection, 1>,
    /// Transmits for senders that keep coming.
    #[pin]
    pub(super) xmit_work: Work<Connection, 3>,
    /// Removes acknowledged messages and those of closed sockets from the queues, and wakes waiting
    /// senders.
    #[pin]
    pub(super) sweep: DelayedWork<Connection, 2>,
}

impl Connection {
    pub(super) fn new(
        key: ConnKey,
        node: Arc<Node>,
        creator: Option<UserId>,
        pools: Arc<Pools>,
        first: Option<Arc<Connection>>,
    ) -> Result<Arc<Self>> {
        let (fragment, most) = node.transports.get(key.transport).map_or_else(
            || (FragmentSize::default(), PathCount::One),
            |transport| (transport.fragment(), transport.most_paths()),
        );
        let policy = node.tunables.ack_policy();
        // Without a generation of this node. C RDS takes another one for a restart, at which it
        // drops unacknowledged messages of the present connection, too.
        let negotiates = key.transport == TransportId::Tcp && first.is_none();
        let mprds = negotiates.then(|| Mprds::new(most, None));
        let paths = match negotiates && most > PathCount::One {
            true => Some(PathSet::new()?),
            false => None,
        };
        let path = Path::new(key, policy, fragment, mprds);
        let log_limit = LogLimit::new(!node.is_of_user());
        let quota_charge = node.limits.charge_for(key, creator, node.is_of_user());
        Arc::pin_init(
            try_pin_init!(Self {
                key,
                node,
                creator,
                quota_charge,
                generation: time::random_u32().max(1),
                pools <- AppendOnlyCell::new(pools),
                remote <- Remote::new(),
                waiters <- Waiters::new(),
                path <- path,
                first,
                paths,
                refusals: Atomic::new(0),
                fault_limiter <- FaultLimiter::new(),
                log_limit,
                work <- kernel::new_work!("Connection::work"),
                timer <- kernel::new_delayed_work!("Connection::timer"),
                xmit_work <- kernel::new_work!("Connection::xmit_work"),
                sweep <- kernel::new_delayed_work!("Connection::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns `true` if the local address is the lower one. This settles which side connects.
    pub(crate) fn is_lower(&self) -> bool {
        self.key.laddr < self.key.faddr
    }

    /// Returns `true` if the connection uses TCP.
    pub(super) fn is_stream(&self) -> bool {
        self.key.transport == TransportId::Tcp
    }

    /// Counts something for which RDS over TCP has no counter, or one of its own.
    #[inline]
    pub(super) fn count_rdma(&self, counter: Counter) {
        if !self.is_stream() {
            self.node.stats.inc(counter);
        }
    }

    /// Notes a rejection of a local request by the peer itself, not by its CM, with this data. The
    /// event handler of the endpoint calls this, so there is one call at a time.
    pub(crate) fn note_rejection(&self, private_data: &[u8]) {
        let ran_rds_rust = self.path.rx.lock().peer_ran_rds_rust();
        let why = Rejection::parse(private_data);
        let refusals = self.refusals().after(why, ran_rds_rust);
        self.refusals.store(refusals.number(), Relaxed);
    }

    /// Returns the refusals of local requests since the connection was up.
    pub(crate) fn refusals(&self) -> Refusals {
        Refusals::from_number(self.refusals.load(Relaxed))
    }

    /// Returns `true` if a port of the peer is congested.
    #[inline]
    pub(crate) fn is_congested(&self, port: u16) -> bool {
        self.first().remote.is_congested(port)
    }

    /// Returns the pools that provide memory for messages.
    #[inline]
    pub(super) fn pools(&self) -> &Pools {
        self.pools.get()
    }

    /// Sets the pools for messages: those of the device that the connection now uses.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn set_pools(&self, pools: &Arc<Pools>) -> Result {
        self.pools.set(pools)
    }

    /// Returns the memory that a message of `len` bytes takes, in bytes.
    pub(crate) fn cost_of_message(&self, len: u32) -> usize {
        Message::cost(len, self.path.fragment())
    }

    /// Allocates the buffers of a message with `len` bytes.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` if the pool is at its limit.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn alloc_message(&self, len: u32) -> Result<MsgBuffers> {
        MsgBuffers::alloc(self.pools(), self.path.fragment(), len)
    }

    /// Creates a message for [`Self::send`] from the data of a system call. `buffers` are for `len`
    /// bytes.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if the program's memory cannot be read.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn message_from_user(
        &self,
        buffers: MsgBuffers,
        ports: (u16, u16),
        msg: &mut SendMsg<'_>,
        len: u32,
        ops: MsgOps,
        charge: Option<SndbufCharge>,
    ) -> Result<Item<Message>> {
        let message = Message::from_user(buffers, ports, msg, len, ops, charge)?;
        self.node.stats.add(Counter::CopyFromUser, len as usize);
        Ok(message)
    }

    /// Traces the failure of step `what`, which ends the connection or an attempt. abi.md lists the
    /// meaning of `code`, and the reasons in the table of paths.
    #[cold]
    pub(crate) fn note_error(&self, what: &str, code: i32) {
        trace::error(&self.key.traced(), what, code);
        if let Some(reason) = DropReason::of_failure(what, self.is_stream()) {
            self.path.note_drop_reason(reason);
        }
    }

    /// Traces a failure as [`Self::note_error`] does, with an error as the code.
    #[cold]
    pub(crate) fn note_failure(&self, what: &str, why: impl Into<Error>) {
        self.note_error(what, why.into().to_errno());
    }

    /// Counts and traces `count` dropped messages or frames. Does nothing for 0.
    #[cold]
    pub(crate) fn note_drop(&self, reason: Counter, count: usize) {
        if count > 0 {
            self.node.stats.add(reason, count);
            trace::dropped(&self.key.traced(), reason, count);
        }
    }
}
