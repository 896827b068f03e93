// SPDX-License-Identifier: GPL-2.0

//! State of an endpoint that its worker shares with the CM's event handler and with the device.
//!
//! The CM calls its handler in process context. The handler records what happened, and wakes the
//! worker, which owns everything else of the endpoint.

use crate::{
    cm::laddr::LocalAddrs,
    conn::{
        Connection,
        EndpointEvent,
        EndpointProgress, //
    },
    kapi::{
        errno::Errno,
        net::IpBits,
        print::pr_info_ratelimited,
        rdma::{
            CmEvent,
            CmHandler,
            DeviceId, //
        },
        sync::ReadOnce, //
    },
    proto::{
        ib_private::{
            check_reply,
            Private,
            Version, //
        },
        wire::FragmentSize, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    }, //
};

/// State of an endpoint that its worker shares with event handlers.
pub(super) struct EndpointShared {
    pub(super) connection: Arc<Connection>,
    pub(super) progress: EndpointProgress,
    /// The CM has resolved the peer's address. Set before the end of the step is recorded.
    has_address: Atomic<bool>,
    /// Private data of the local request, compared with the reply. Empty on the passive side.
    pub(super) proposed: SetOnce<Private>,
    /// Payload bytes of a fragment: as agreed, once the connection is established.
    fragment: Atomic<u32>,
    /// The agreed version.
    pub(super) version: SetOnce<Version>,
    /// The device requires that the active side sends first: see
    /// [`DeviceCaps`](crate::kapi::rdma::DeviceCaps::active_side_first).
    pub(super) active_side_first: Atomic<bool>,
    /// The peer serves no reads and atomics. The device would never complete them, or end the
    /// connection.
    peer_has_no_responder: Atomic<bool>,
    /// The device that had the local address at the start, if that was certain. It may differ from
    /// the endpoint's: iWARP accepts a request that arrives through another device.
    initial_device: Option<Option<DeviceId>>,
    /// The peer, or its CM, has disconnected.
    peer_has_gone: Atomic<bool>,
    /// The local address has left the endpoint's device, and the worker was notified.
    moved: Atomic<bool>,
}

impl EndpointShared {
    /// Creates the state of an endpoint without a device. `initial_device` is the device that has
    /// the local address, if that is certain. May sleep.
    pub(super) fn new(
        connection: &Arc<Connection>,
        fragment: FragmentSize,
        initial_device: Option<Option<DeviceId>>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                connection: connection.clone(),
                progress: EndpointProgress::new(),
                has_address: Atomic::new(false),
                proposed: SetOnce::new(),
                fragment: Atomic::new(connection.path.largest_fragments(fragment).bytes()),
                version: SetOnce::new(),
                active_side_first: Atomic::new(false),
                peer_has_no_responder: Atomic::new(false),
                initial_device,
                peer_has_gone: Atomic::new(false),
                moved: Atomic::new(false),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the fragment size. Any context.
    #[inline]
    pub(super) fn fragment(&self) -> FragmentSize {
        FragmentSize::at_most(self.fragment.read_once())
    }

    /// Returns `true` once the peer's address is resolved. The worker calls this at the end of a
    /// step. Any context.
    pub(super) fn has_address(&self) -> bool {
        self.has_address.load(Relaxed)
    }

    /// Returns the version once it is agreed. Any context.
    pub(super) fn version(&self) -> Option<Version> {
        self.version.copy()
    }

    /// Returns `true` if an established connection can carry reads and atomics. Any context.
    pub(super) fn serves_reads(&self) -> bool {
        !self.peer_has_no_responder.read_once()
    }

    /// Sets the agreed number of outstanding reads and atomics. Called before establishment.
    pub(super) fn set_initiator_depth(&self, depth: u8) {
        self.peer_has_no_responder.store(depth == 0, Relaxed);
    }

    /// Limits the fragment size to `size`, before the connection is established.
    pub(super) fn limit_fragment(&self, size: FragmentSize) {
        self.fragment
            .store(self.fragment().min(size).bytes(), Relaxed);
    }

    /// Records an event, and wakes the worker. Any context.
    pub(super) fn note(&self, step: EndpointEvent) {
        self.progress.set(step);
        self.connection.wake_worker();
    }

    /// Gives up the endpoint if its local address has left `device`, its device. May sleep.
    pub(super) fn check_address(&self, addrs: &LocalAddrs, device: DeviceId) {
        let key = &self.connection.key;
        let Some(now) = addrs.certain_device_of(IpBits::new(key.laddr), key.scope) else {
            return;
        };
        if now == Some(device) || Some(now) == self.initial_device || self.moved.xchg(true, Full) {
            return;
        }
        self.connection.node.stats.inc(Counter::IbAddrMoved);
        let what = match now {
            Some(_) => "has moved to another RDMA device: reconnecting there",
            None => "is on no RDMA device any more: waiting for it",
        };
        self.connection
            .note_failure("address moved", Errno::AddressNotAvailable);
        pr_info_ratelimited!(
            self.connection.log_limit,
            "{}: the local address {}\n",
            key,
            what
        );
        self.note(EndpointEvent::Moved);
    }

    /// Gives up the endpoint because its device is being removed. Any context.
    pub(super) fn lose_device(&self) {
        self.connection.note_failure("device removal", ENODEV);
        self.note(EndpointEvent::Lost);
    }

    /// Returns `true` if the peer, or its CM, has disconnected. Any context.
    pub(super) fn peer_has_gone(&self) -> bool {
        self.peer_has_gone.load(Relaxed)
    }

    /// Returns `true` if the peer requested the connection.
    pub(super) fn is_passive(&self) -> bool {
        self.proposed.as_ref().is_none()
    }

    /// Handles the first frame. For the passive side it replaces the CM's last message, which may
    /// be late or lost, and permits sending. Any context.
    ///
    /// The CM is not notified (`rdma_notify()`): Linux 7.2 does that in a work item, and destroying
    /// the CM id earlier may block for a minute.
    pub(super) fn note_first_frame(&self) {
        if self.is_passive() {
            self.note(EndpointEvent::Established);
        }
    }

    /// Returns `true` if the reply to the local request is acceptable.
    fn accepts_reply(&self, data: &[u8], initiator_depth: u8) -> bool {
        // The passive side has checked the request before it accepted.
        let Some(proposed) = self.proposed.as_ref() else {
            return true;
        };
        // iWARP drivers report another value there, or none.
        if !self.active_side_first.load(Relaxed) {
            self.set_initiator_depth(initiator_depth);
        }
        let key = &self.connection.key;
        let reply = match key.laddr.to_ipv4_mapped() {
            Some(_) => Private::parse_v4(data),
            None => Private::parse_v6(data),
        };
        match reply.map(|reply| (check_reply(proposed, &reply), reply.credit)) {
            Ok((Ok(agreed), credit)) => {
                self.limit_fragment(agreed.fragment);
                let _: bool = self.version.populate(agreed.version);
                self.connection.path.take_offer(credit);
                true
            }
            Ok((Err(reject), _)) => {
                pr_info_ratelimited!(
                    self.connection.log_limit,
                    "{}: the peer's reply is invalid: {:?}\n",
                    key,
                    reject
                );
                false
            }
            Err(error) => {
                pr_info_ratelimited!(
                    self.connection.log_limit,
                    "{}: the peer's reply is malformed: {:?}\n",
                    key,
                    error
                );
                false
            }
        }
    }
}

impl CmHandler for EndpointShared {
    fn event(&self, event: CmEvent<'_>) {
        let key = &self.connection.key;
        // The CM id of a closed endpoint may be kept for a while. Its connection may have another
        // endpoint.
        if let Some((what, code)) = event.failure().filter(|_| !self.progress.has_ended()) {
            self.connection.note_error(what, code);
        }
        let step = match event {
            CmEvent::AddrResolved => {
                self.has_address.store(true, Relaxed);
                EndpointEvent::StepDone
            }
            CmEvent::AddrUnknown => EndpointEvent::StepDone,
            CmEvent::RouteResolved => EndpointEvent::Prepared,
            // The active side's congestion map follows; it establishes the connection.
            CmEvent::Established { .. }
                if self.is_passive() && self.active_side_first.load(Relaxed) =>
            {
                return
            }
            CmEvent::Established {
                private_data,
                initiator_depth,
            } => {
                if self.accepts_reply(private_data, initiator_depth) {
                    EndpointEvent::Established
                } else {
                    self.connection.note_failure("reply", EINVAL);
                    EndpointEvent::Lost
                }
            }
            CmEvent::Rejected {
                reason,
                by_consumer,
                private_data,
            } => {
                pr_debug!("{}: rejected, reason {}\n", key, reason);
                if by_consumer {
                    self.connection.note_rejection(private_data);
                }
                EndpointEvent::Rejected
            }
            // The queue pair of this number is gone already.
            CmEvent::TimewaitExit => return,
            CmEvent::Disconnected => {
                pr_debug!("{}: {}\n", key, event);
                self.peer_has_gone.store(true, Relaxed);
                EndpointEvent::Lost
            }
            CmEvent::Unreachable { .. }
            | CmEvent::DeviceRemoval
            | CmEvent::AddrChange
            | CmEvent::Error { .. } => {
                pr_debug!("{}: {}\n", key, event);
                EndpointEvent::Lost
            }
        };
        self.note(step);
    }
}
