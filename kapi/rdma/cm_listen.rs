// SPDX-License-Identifier: GPL-2.0

//! Listeners for connection requests of peers, by the RDMA connection manager (CM).
//!
//! # Operation
//!
//! The CM creates an identifier for each request and calls the listener's handler, which gets it as
//! an [`IncomingRequest`]. Until [`IncomingRequest::attach`], the events of the identifier go to a
//! small temporary context. It stores that the peer has withdrawn the request or the device is
//! being removed. [`IncomingRequest::attach`] passes the identifier to its final handler, together
//! with the stored event.
//!
//! # Errors
//!
//! A request that is dropped is rejected with [`RequestHandler::REFUSAL`].

use super::{
    addr::Storage,
    cm::{
        self,
        CmHandler,
        CmId, //
    },
    cm_event::event_data,
    cm_state::CmState,
    device::IbDevice, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        net::NetRef, //
    }, //
};
use core::{
    mem::ManuallyDrop,
    net::SocketAddr,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// Handler of the requests of a listener.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// Private data of the rejection if a request is dropped, or there is no memory for it. At most
    /// 148 bytes.
    const REFUSAL: &'static [u8];

    /// Handles a peer's request. It must not [attach](IncomingRequest::attach) the request.
    ///
    /// Instead it passes the request to a worker, or rejects it: by dropping it or with
    /// [`IncomingRequest::reject`].
    ///
    /// # Context
    ///
    /// Process context, with the handler mutexes of the listener and of the request held.
    fn request(&self, request: IncomingRequest);
}

/// The object to which the context of an identifier points before its request is attached.
struct Unattached {
    state: CmState,
    /// Number of the first event plus one. 0 before the first event.
    event: Atomic<u32>,
    status: Atomic<i32>,
}

impl Unattached {
    /// Event handler of an identifier whose request is not attached, called by the CM.
    ///
    /// # Safety
    ///
    /// Only for the CM, as handler of the identifier of a [`ListenRequest`].
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM passes a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: `ListenRequest` keeps the context until the identifier is destroyed or has
        // another context.
        let this = unsafe { &*context.cast::<Self>() };
        // SAFETY: The CM passes a valid event.
        this.save_event(unsafe { &*event });
        0
    }

    fn save_event(&self, event: &bindings::rdma_cm_event) {
        // The handler mutex orders the stores before the loads in `saved_event`.
        if self.event.load(ordering::Relaxed) == 0 {
            self.status.store(event.status, ordering::Relaxed);
            self.event
                .store(event.event.wrapping_add(1), ordering::Relaxed);
        }
    }

    fn saved_event(&self) -> Option<bindings::rdma_cm_event> {
        Some(bindings::rdma_cm_event {
            event: self.event.load(ordering::Relaxed).checked_sub(1)?,
            status: self.status.load(ordering::Relaxed),
            ..Default::default()
        })
    }
}

/// The identifier of a request.
///
/// # Invariants
///
/// `raw` is an identifier that `self` owns; its context is `context`, with
/// [`Unattached::on_event`] as handler.
struct ListenRequest {
    raw: NonNull<bindings::rdma_cm_id>,
    context: Arc<Unattached>,
    /// Private data of the rejection if the request is not attached.
    refusal: &'static [u8],
}

// SAFETY: The CM has locks. An identifier may be used and destroyed from any thread.
unsafe impl Send for ListenRequest {}
// SAFETY: As above.
unsafe impl Sync for ListenRequest {}

impl Drop for ListenRequest {
    fn drop(&mut self) {
        // The CM would also reject the request, but without private data.
        // SAFETY: By the type invariants `self` owns the identifier.
        unsafe { cm::reject(self.raw, self.refusal) };
        // SAFETY: As above.
        unsafe { self.context.state.destroy(self.raw.as_ptr()) };
    }
}

/// A peer's connection request. Dropping it rejects the request, and sleeps.
pub(crate) struct IncomingRequest {
    request: ListenRequest,
    local: SocketAddr,
    remote: SocketAddr,
    private_data: [u8; Self::MAX_DATA],
    private_data_len: u8,
    responder_resources: u8,
    initiator_depth: u8,
}

impl IncomingRequest {
    /// Maximum length of private data. The CM stores the length in a byte.
    const MAX_DATA: usize = u8::MAX as usize;

    fn new(request: ListenRequest, conn: &bindings::rdma_conn_param) -> Option<Self> {
        let raw = request.raw;
        let mut private_data = [0; Self::MAX_DATA];
        // SAFETY: `conn` belongs to the event that is being handled.
        for (to, from) in private_data.iter_mut().zip(unsafe { event_data(conn) }) {
            *to = *from;
        }
        Some(Self {
            // SAFETY: The identifier is alive. The addresses of a request do not change.
            local: unsafe { cm::local_addr(raw) }?,
            // SAFETY: As above.
            remote: unsafe { cm::remote_addr(raw) }?,
            request,
            private_data,
            private_data_len: conn.private_data_len,
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
        })
    }

    /// Returns the local address that the peer has requested.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the index of the network interface through which the request arrived. 0 if it is
    /// unknown.
    ///
    /// The addresses do not always determine it.
    pub(crate) fn interface(&self) -> u32 {
        // SAFETY: The identifier is alive. Its interface does not change.
        unsafe { bindings::rds_rust_rdma_interface(self.request.raw.as_ptr()) }
    }

    /// Returns the device through which the request arrived. `None` if it is being removed, or does
    /// not serve the network namespace of the listener.
    pub(crate) fn device(&self) -> Option<ARef<IbDevice>> {
        // SAFETY: The identifier is alive.
        let device = unsafe { bindings::rds_rust_rdma_device(self.request.raw.as_ptr()) };
        // SAFETY: The device stays in memory as long as an identifier is bound to it.
        unsafe { IbDevice::try_get(device) }
    }

    /// Returns the device through which the request arrived, also if it does not serve the network
    /// namespace of the listener any more. `None` if it is being removed.
    pub(crate) fn bound_device(&self) -> Option<ARef<IbDevice>> {
        // SAFETY: The identifier is alive.
        let device = unsafe { bindings::rds_rust_rdma_bound_device(self.request.raw.as_ptr()) };
        // SAFETY: The device stays in memory as long as an identifier is bound to it.
        unsafe { IbDevice::try_get(device) }
    }

    /// Returns the local GID and the peer's GID in a request over RoCE. `None` if it arrived over
    /// another transport.
    ///
    /// The peer's CM has written them. Answers are sent to the GID that the request names.
    pub(crate) fn named_gids(&self) -> Option<([u8; 16], [u8; 16])> {
        let mut named = bindings::rds_rust_rdma_named::default();
        // SAFETY: The identifier is alive. The path of a request does not change.
        unsafe { bindings::rds_rust_rdma_named(self.request.raw.as_ptr(), &mut named) }
            .then_some((named.local_gid, named.peer_gid))
    }

    /// Returns the peer's private data: 56 bytes on InfiniBand and RoCE, padded with zeros; up to
    /// 255 bytes on iWARP.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.private_data
            .get(..self.private_data_len.into())
            .unwrap_or_default()
    }

    /// Returns `true` if an answer can be sent, see [`CmId::path_is_up`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn path_is_up(&self) -> bool {
        // SAFETY: The identifier is alive. Its interface does not change.
        unsafe { bindings::rds_rust_rdma_path_is_up(self.request.raw.as_ptr()) }
    }

    /// Returns `true` if the peer does not wait for an answer any more: it has withdrawn the
    /// request, or the device is being removed.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn has_ended(&self) -> bool {
        self.request.context.event.load(ordering::Relaxed) != 0
    }

    /// Returns `true` if the first event was the peer's withdrawal of the request. Then nothing is
    /// sent when the request is dropped.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let rejected = bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED;
        self.request.context.event.load(ordering::Relaxed) == rejected.wrapping_add(1)
    }

    /// Returns the number of RDMA READs and atomics that the peer wants to have outstanding. It
    /// limits [`responder_resources`](super::ConnParams::responder_resources).
    pub(crate) fn responder_resources(&self) -> u8 {
        self.responder_resources
    }

    /// Returns the number of RDMA READs and atomics that the peer can serve at a time. It limits
    /// [`initiator_depth`](super::ConnParams::initiator_depth).
    pub(crate) fn initiator_depth(&self) -> u8 {
        self.initiator_depth
    }

    /// Rejects the request with up to 148 bytes of private data.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn reject(mut self, private_data: &'static [u8]) {
        self.request.refusal = private_data;
    }

    /// Makes `handler` the handler of the identifier. It handles a stored event before this
    /// function returns.
    ///
    /// # Errors
    ///
    /// The request is rejected if this fails.
    ///
    /// - `EBUSY` within [`RequestHandler::request`].
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn attach<E: CmHandler>(self, handler: Arc<E>) -> Result<CmId<E>> {
        if self.request.context.state.in_handler() {
            return Err(EBUSY);
        }
        let request = ManuallyDrop::new(self.request);
        let raw = request.raw;
        // SAFETY: The field is in a `ManuallyDrop` and not used again.
        let context = unsafe { core::ptr::read(&request.context) };
        // SAFETY: `request` owned the identifier and gives it up. The handler does not run in this
        // task.
        unsafe { CmId::adopt(raw, handler, request.refusal, || context.saved_event()) }
    }
}

/// The object to which the context of a listening identifier points.
struct ListenContext<L> {
    handler: Arc<L>,
}

/// A listening identifier. Dropping it sleeps. Afterwards its handler is not called any more, so
/// the handler must not drop it.
///
/// # Invariants
///
/// `raw` is an identifier that `self` owns; its context is `_context`.
pub(crate) struct Listener<L: RequestHandler> {
    raw: NonNull<bindings::rdma_cm_id>,
    _context: Arc<ListenContext<L>>,
}

// SAFETY: The CM has locks. An identifier may be destroyed from any thread.
unsafe impl<L: RequestHandler> Send for Listener<L> {}
// SAFETY: A shared reference only permits reads.
unsafe impl<L: RequestHandler> Sync for Listener<L> {}

impl<L: RequestHandler> Listener<L> {
    /// Listens in a network namespace at `addr` on all devices that have the address. An
    /// unspecified address stands for all present and future devices. The namespace does not end as
    /// long as the listener exists.
    ///
    /// An IPv6 listener does not accept IPv4 requests.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE` if the port is in use.
    /// - `ENODEV` if the namespace ends.
    /// - `ENOMEM`, or errors of the CM.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        net: &NetRef,
        addr: &SocketAddr,
        backlog: u16,
        handler: Arc<L>,
    ) -> Result<Self> {
        let in_use = net.try_use()?;
        let context = Arc::new(ListenContext { handler }, GFP_KERNEL)?;
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        let net = in_use.as_raw();
        // SAFETY: The namespace is alive as long as its use. The context outlives the identifier.
        let raw = unsafe { bindings::rds_rust_rdma_create_id(net, Some(Self::on_event), pointer) };
        // INVARIANT: The identifier is new and has this context.
        let this = Self {
            raw: NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?,
            _context: context,
        };
        let raw = this.raw.as_ptr();
        if addr.is_ipv6() {
            // SAFETY: The identifier is alive.
            to_result(unsafe { bindings::rdma_set_afonly(raw, 1) })?;
        }
        let mut storage = Storage::new(addr);
        // SAFETY: The identifier is alive. The CM copies the address.
        let bound = unsafe { bindings::rdma_bind_addr(raw, storage.as_mut_ptr()) };
        to_result(bound).map_err(|error| {
            // The CM reports `EADDRNOTAVAIL` if the port is in use and one of the two addresses is
            // unspecified.
            if addr.ip().is_unspecified() && error == Errno::AddressNotAvailable.into() {
                Errno::AddressInUse.into()
            } else {
                error
            }
        })?;
        // SAFETY: The identifier is alive and has an address.
        to_result(unsafe { bindings::rdma_listen(raw, backlog.into()) })?;
        Ok(this)
    }

    /// Returns the address of the listener. It contains the assigned port if none was requested.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: The identifier is alive. Its address does not change.
        unsafe { cm::local_addr(self.raw) }
    }

    /// Handler of the listener's own events, and of the first event of each new identifier.
    ///
    /// # Safety
    ///
    /// Only for the CM, as handler of the identifier of a [`Listener`].
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM passes a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: The context is that of a listener. Destruction of the listener waits for this
        // handler.
        let context = unsafe { ArcBorrow::<ListenContext<L>>::from_raw(context.cast()) };
        // SAFETY: The CM passes a valid event.
        let event = unsafe { &*event };
        // SAFETY: Identifier and event are those of this call.
        unsafe { context.on_event(id, event) }
    }
}

impl<L: RequestHandler> ListenContext<L> {
    /// Handles an event. Returns the result for the CM, which destroys `id` unless it is 0.
    ///
    /// # Safety
    ///
    /// `event` must be an event of `id` that is being handled.
    unsafe fn on_event(
        &self,
        id: *mut bindings::rdma_cm_id,
        event: &bindings::rdma_cm_event,
    ) -> c_int {
        if event.event != bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
            return 0;
        }
        let unattached = Unattached {
            state: CmState::new(),
            event: Atomic::new(0),
            status: Atomic::new(0),
        };
        let Some(raw) = NonNull::new(id) else {
            return EINVAL.to_errno();
        };
        let Ok(context) = Arc::new(unattached, GFP_KERNEL) else {
            // SAFETY: The identifier is alive and belongs to a request.
            unsafe { cm::reject(raw, L::REFUSAL) };
            // If this rejection has failed, the CM of InfiniBand and RoCE sends one itself, except
            // after `ENOMEM`. The peer would retry after more than 4 s then.
            return EAGAIN.to_errno();
        };
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: The CM holds the handler mutex of the new identifier. The context outlives the
        // identifier.
        unsafe { bindings::rds_rust_rdma_set_context(id, Some(Unattached::on_event), pointer) };
        // INVARIANT: The CM passes the ownership of the new identifier to its handler.
        let request = ListenRequest {
            raw,
            context: context.clone(),
            refusal: L::REFUSAL,
        };
        // SAFETY: This event sets `conn` in the union.
        let conn = unsafe { &event.param.conn };
        context.state.handle(|| {
            if let Some(request) = IncomingRequest::new(request, conn) {
                self.handler.request(request);
            }
        })
    }
}

impl<L: RequestHandler> Drop for Listener<L> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the identifier.
        unsafe { bindings::rdma_destroy_id(self.raw.as_ptr()) };
    }
}
