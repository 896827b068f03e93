// SPDX-License-Identifier: GPL-2.0

//! One attempt to connect, and the connection that it becomes: a CM id and its queue pair.
//!
//! # Operation
//!
//! The active side resolves the peer's address and the route, each with an event of the CM at the
//! end. Then it creates the queue pair, posts receives, and sends a request with private data. The
//! passive side begins with the request of a peer: it creates the queue pair, posts receives, and
//! accepts. Receives are posted before the peer can send, so its first frame finds a buffer. The
//! worker of the connection runs each step; `proto::connect` decides which is next.
//!
//! # Ownership
//!
//! The worker owns the [`IbEndpoint`]. The CM's handler and the device use its [`EndpointShared`]
//! only. Posted buffers belong to the queue pair. Dropping the endpoint closes that: the posted
//! requests are flushed, and their buffers return to the pools.
//!
//! # Errors
//!
//! A step that fails returns the error to the worker, which drops the endpoint and tries again
//! later. A request or a CM id whose last message has no route is deferred: soft-RoCE could not
//! send that, and would be unusable afterwards.

use super::{
    device::{
        Device,
        DeviceUse, //
    },
    endpoint_list::Hold,
    endpoint_shared::EndpointShared,
    ib::Ib,
    private::{
        cm_port,
        socket_addr,
        PrivateBytes, //
    },
    qp_context::QpContext,
    quirks::DeferredCmId,
    recv_ring::{
        Least,
        RecvRingPolicy, //
    },
    ring_service::{
        Filled,
        RNR_TIMER, //
    }, //
};
use crate::{
    conn::{
        Connection,
        Endpoint,
        EndpointProgress,
        Link,
        NextStep,
        Request, //
    },
    kapi::{
        errno::Errno,
        net::IpBits,
        rdma::{
            CmId,
            ConnParams,
            IncomingRequest,
            Qp, //
        },
        sync::Section, //
    },
    proto::{
        credits::Credits,
        ib_private::{
            Addr,
            Agreed,
            Private,
            Rejection,
            Version, //
        },
        info::RdmaPath,
        resolve::{
            route_timeout_ms,
            AddrTimeouts, //
        },
        wire::FragmentSize, //
    },
    recv_pool::Context,
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Timeout for the answer of an iWARP peer at the level of TCP.
const TCP_TIMEOUT_MS: u32 = 2000;

/// Timeout for the reports of operations from the device, once the peer has disconnected.
/// Soft-RoCE handles an answer in a work item. Without an answer the device reports nothing, so the
/// next connection is made later by this time.
const ANSWER_TIMEOUT_MS: u32 = 100;

/// Number of retries when the peer has no receive posted; 7 means unlimited.
const RNR_RETRY_COUNT: u8 = 7;

/// Bits of a type of service that are the service level.
const SERVICE_LEVELS: u8 = 0xf;

/// An endpoint. Fields are dropped in this order.
pub(super) struct IbEndpoint {
    qp: Option<Arc<Qp<QpContext>>>,
    id: CmId<EndpointShared>,
    shared: Arc<EndpointShared>,
    device: Option<DeviceUse>,
    transport: Arc<Ib>,
    /// Timeouts of the CM for the address, one for each attempt to resolve it.
    timeout: AddrTimeouts,
    /// Open until the device of the CM id is known.
    section: Option<Section>,
}

impl IbEndpoint {
    /// Starts to connect: resolves the peer's address. May sleep.
    pub(super) fn resolve(
        transport: &Arc<Ib>,
        connection: &Arc<Connection>,
    ) -> Result<KBox<dyn Endpoint>> {
        // The CM resolves it, but no device has it. Unroutable messages break soft-RoCE.
        if IpBits::new(connection.key.faddr).is_loopback() {
            return Err(ENODEV);
        }
        // It may be broadcast only since recently, or the peer may have claimed it as its own.
        if transport.net.is_broadcast(connection.key.faddr) {
            return Err(EINVAL);
        }
        transport.check_open()?;
        let section = transport.section()?;
        let initial_device = transport.device_of_addr(&connection.key);
        let shared = EndpointShared::new(connection, transport.fragment, initial_device)?;
        let id = CmId::new(&transport.net, shared.clone())?;
        let mut endpoint = KBox::new(
            Self {
                qp: None,
                id,
                shared,
                device: None,
                transport: transport.clone(),
                timeout: AddrTimeouts::new(),
                section: Some(section),
            },
            GFP_KERNEL,
        )?;
        endpoint.ask_for_address()?;
        endpoint.use_device()?;
        endpoint.section = None;
        Ok(endpoint)
    }

    /// Asks the CM for the peer's address.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` after the last timeout.
    /// - Any error of the CM.
    ///
    /// # Context
    ///
    /// May sleep.
    fn ask_for_address(&mut self) -> Result {
        let key = &self.shared.connection.key;
        let timeout = self.timeout.next().ok_or(Errno::TimedOut)?;
        self.id.resolve_addr(
            Some(&socket_addr(key.laddr, 0, key.scope)),
            &socket_addr(key.faddr, cm_port(key.faddr), key.scope),
            timeout,
        )
    }

    /// Registers the endpoint with its device, that of the local address from the start. May sleep.
    fn use_device(&mut self) -> Result {
        let rdma = self.id.device().ok_or(ENODEV)?;
        self.device = Some(self.transport.use_device(&rdma, &self.shared)?);
        Ok(())
    }

    /// Tries again to resolve the peer's address.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if the time limit is over.
    /// - `ENODEV` if the address is no longer reached through the same device.
    /// - Any other error of a step.
    ///
    /// # Context
    ///
    /// May sleep.
    fn resolve_again(&mut self) -> Result {
        self.transport.check_open()?;
        self.section = Some(self.transport.section()?);
        // A CM id resolves an address only once. The new id must have the device of the old one.
        self.id = CmId::new(&self.transport.net, self.shared.clone())?;
        self.ask_for_address()?;
        let device = self.id.device().ok_or(ENODEV)?;
        match &self.device {
            Some(used) if used.device.id == device.id() => {
                self.section = None;
                Ok(())
            }
            _ => Err(ENODEV),
        }
    }

    /// Starts to resolve the route. The address has been resolved. May sleep.
    fn resolve_route(&self) -> Result {
        if self.id.is_multicast() {
            return Err(EINVAL);
        }
        // The address is resolved, so messages of deferred CM ids may have a route again.
        if let Some(device) = self.id.device() {
            self.transport.parking.sweep(device.id());
        }
        // The request of `connect` would put soft-RoCE's QP1 into an error state permanently.
        if !self.id.path_is_up() {
            return Err(Errno::NetDown.into());
        }
        self.id.set_service_type(self.shared.connection.key.tos);
        let timeout_ms = route_timeout_ms(self.id.has_subnet_administrator());
        self.id.resolve_route(timeout_ms)
    }

    /// Creates the queue pair and posts receives. Returns the credits to offer: 0 without flow
    /// control, which needs that the peer has `wanted` it, as far as known. May sleep.
    fn prepare(&mut self, wanted: bool) -> Result<(Arc<Device>, u32)> {
        let device_use = self.device.as_ref().ok_or(ENODEV)?;
        let device = device_use.device.clone();
        self.id.set_rnr_timer(RNR_TIMER)?;
        self.shared
            .active_side_first
            .store(device.caps.active_side_first, Relaxed);
        let config = self.transport.tunables.qp_config(&device.caps);
        if config.max_send_wr == 0 || config.max_recv_wr == 0 {
            // Without one entry in each queue nothing would ever complete.
            return Err(ENOSPC);
        }
        let needed = !device.caps.receiver_not_ready;
        let controlled = wanted && (needed || self.transport.tunables.controls_flow());
        let context = QpContext::new(
            self.shared.connection.clone(),
            self.shared.clone(),
            device.clone(),
            config,
            controlled,
            match device.caps.answers_late {
                true => ANSWER_TIMEOUT_MS,
                false => 0,
            },
        );
        // New messages are placed in memory of this device; those in the queue will be copied.
        self.shared.connection.set_pools(&device.pools)?;
        self.shared.connection.path.begin_credits(controlled);
        // Without RNR retries a frame that finds no receive ends the connection.
        let least = match needed {
            true => Least::Needed(config.max_recv_wr),
            false => Least::Wanted(self.transport.tunables.min_recv_wr()),
        };
        let (fragment, slots) = (self.shared.fragment(), config.max_recv_wr);
        let ring = RecvRingPolicy::new(fragment, slots, least, controlled);
        let qp = Qp::create(&self.id, &device.pd, config, context, ring)?;
        device_use.set_qp(qp.clone());
        let mut posted = QpContext::fill(&qp, Context::MaySleep);
        if !matches!(posted, Ok(Filled::Depth)) {
            // Memory may only be short in large pieces.
            self.shared.limit_fragment(FragmentSize::K4);
            posted = QpContext::fill(&qp, Context::MaySleep);
        }
        // From here on the queue pair has to be closed.
        self.qp = Some(qp);
        posted?;
        let credit = self.shared.connection.path.offer_credits();
        if !controlled || credit >= Credits::LEAST {
            return Ok((device, credit));
        }
        if needed {
            return Err(ENOMEM);
        }
        self.shared.connection.path.begin_credits(false);
        Ok((device, 0))
    }

    fn params<'a>(&self, device: &Device, private: &'a PrivateBytes) -> ConnParams<'a> {
        ConnParams {
            private_data: private.as_slice(),
            responder_resources: device.caps.max_responder_resources,
            initiator_depth: device.caps.max_initiator_depth,
            flow_control: true,
            retry_count: self.transport.tunables.retry_count(),
            rnr_retry_count: RNR_RETRY_COUNT,
        }
    }
}

impl Drop for IbEndpoint {
    fn drop(&mut self) {
        let Some(qp) = &self.qp else {
            return;
        };
        self.shared.progress.end();
        if self.id.path_is_up() {
            // Notifies the peer, unless the peer has disconnected. Errors do not matter.
            let _ = self.id.disconnect();
            qp.close();
        } else {
            qp.close();
            let Some(DeviceUse { device, .. }) = &self.device else {
                return;
            };
            let budget = &self.transport.deferred;
            // If there is no memory, or too many ids wait, the id is destroyed at once.
            if let Ok(parked) = DeferredCmId::connection(device.id, budget, self.id.clone()) {
                self.transport.park(device, parked);
            }
        }
    }
}

impl Endpoint for IbEndpoint {
    fn progress(&self) -> &EndpointProgress {
        &self.shared.progress
    }

    fn next_step(&mut self) -> Result<NextStep> {
        if self.shared.has_address() {
            self.resolve_route()?;
            return Ok(NextStep::Begun);
        }
        if let Err(error) = self.resolve_again() {
            self.shared.connection.note_failure("address error", error);
            return Ok(NextStep::Failed);
        }
        Ok(NextStep::Repeated)
    }

    fn connect(&mut self) -> Result {
        let connection = &self.shared.connection;
        let version = Version::proposed(connection.key.tos, connection.refusals());
        self.shared.limit_fragment(version.max_fragment());
        let (device, credit) = self.prepare(true)?;
        let key = &self.shared.connection.key;
        let private = Private::new(
            Addr(key.laddr.octets()),
            Addr(key.faddr.octets()),
            key.tos,
            version,
            self.shared.fragment(),
            credit,
        );
        let bytes = PrivateBytes::new(&private);
        let _: bool = self.shared.proposed.populate(private);
        // Without a type of service the fabric decides on the service level.
        if key.tos != 0 {
            self.id.set_service_level(key.tos & SERVICE_LEVELS);
        }
        if !self.id.path_is_up() {
            return Err(Errno::NetDown.into());
        }
        let params = self.params(&device, &bytes);
        self.id.connect(&params, TCP_TIMEOUT_MS)
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        let qp = self.qp.clone()?;
        let context = qp.handler();
        let (local_gid, peer_gid, service_level) = self.id.path();
        let _: bool = context.path.populate(RdmaPath {
            local_gid,
            peer_gid,
            max_send_wr: context.config.max_send_wr,
            max_recv_wr: context.config.max_recv_wr,
            max_send_sge: 1,
            service_level,
        });
        if context.is_awaiting_first_frame() {
            context.service_soon();
        }
        Some(qp)
    }
}

/// A valid request of a peer, waiting for the worker. Fields are dropped in this order.
pub(super) struct IncomingConnection {
    request: Option<IncomingRequest>,
    /// The content of the reply.
    agreed: Agreed,
    /// Credits that the peer offers.
    credit: u32,
    transport: Arc<Ib>,
    /// Keeps the request's device.
    _hold: Hold,
}

impl IncomingConnection {
    pub(super) fn new(
        transport: Arc<Ib>,
        request: IncomingRequest,
        agreed: Agreed,
        credit: u32,
        hold: Hold,
    ) -> Self {
        Self {
            request: Some(request),
            agreed,
            credit,
            transport,
            _hold: hold,
        }
    }

    /// Defers the answer to the request until it can be sent, unless too many wait already.
    fn park(&self, request: IncomingRequest, connection: &Connection) {
        let counter = if self.transport.park_request(request) {
            Counter::ConnRequestParked
        } else {
            Counter::ConnRejectBadRequest
        };
        connection.note_drop(counter, 1);
    }
}

impl Request for IncomingConnection {
    fn has_ended(&self) -> bool {
        self.request.as_ref().is_none_or(IncomingRequest::has_ended)
    }

    fn accept(&mut self, connection: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        let request = self.request.take().ok_or(ENODEV)?;
        // First, because soft-RoCE cannot send a rejection then.
        if !request.path_is_up() {
            self.park(request, connection);
            return Err(Errno::NetDown.into());
        }
        if let Err(error) = self.transport.check_open() {
            request.reject(Rejection::Other.data());
            return Err(error);
        }
        let (responder_resources, initiator_depth) =
            (request.responder_resources(), request.initiator_depth());
        let initial_device = self.transport.device_of_addr(&connection.key);
        let shared = EndpointShared::new(connection, self.agreed.fragment, initial_device)?;
        let _: bool = shared.version.populate(self.agreed.version);
        let id = request.attach(shared.clone())?;
        let mut endpoint = KBox::new(
            IbEndpoint {
                qp: None,
                id,
                shared,
                device: None,
                transport: self.transport.clone(),
                timeout: AddrTimeouts::new(),
                section: None,
            },
            GFP_KERNEL,
        )?;
        endpoint.use_device()?;
        let (device, credit) = endpoint.prepare(self.credit > 0)?;
        connection.path.take_offer(self.credit);
        let key = &connection.key;
        let private = Private::new(
            Addr(key.laddr.octets()),
            Addr(key.faddr.octets()),
            key.tos,
            self.agreed.version,
            endpoint.shared.fragment(),
            credit,
        );
        let bytes = PrivateBytes::new(&private);
        let mut params = endpoint.params(&device, &bytes);
        // No more than the peer can use and serve. On iWARP, zeros may mean that it did not say.
        let depths_unspecified =
            device.caps.active_side_first && (responder_resources, initiator_depth) == (0, 0);
        if !depths_unspecified {
            params.responder_resources = params.responder_resources.min(responder_resources);
            params.initiator_depth = params.initiator_depth.min(initiator_depth);
            endpoint.shared.set_initiator_depth(params.initiator_depth);
        }
        endpoint.id.accept(&params)?;
        Ok(endpoint)
    }

    fn reject(&mut self, connection: &Connection) {
        if let Some(request) = self.request.take() {
            if !request.path_is_up() {
                return self.park(request, connection);
            }
            request.reject(Rejection::Other.data());
        }
    }
}
