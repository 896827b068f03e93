// SPDX-License-Identifier: GPL-2.0

//! Listening for connections.
//!
//! The connection manager makes an identifier for each request and calls the listener's handler,
//! which gets it as an [`IncomingRequest`]. From then on events of the new identifier go to a small
//! context of its own, which remembers that the peer or the device went away.
//! [`IncomingRequest::attach`] hands the identifier over to its final handler, and passes on what
//! was remembered.
//!
//! A request that is dropped is rejected, with what its listener's handler has for that.

use super::{
    addr::Storage,
    cm::{self, CmHandler, CmId, State},
    cm_event::event_data,
    device::Device,
};
use crate::{bindings, kapi::errno::Errno};
use core::{mem::ManuallyDrop, net::SocketAddr, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{ordering, Atomic},
        Arc, ArcBorrow,
    },
};

/// Who decides about requests.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// What a peer is told whose request is dropped, or finds no memory: up to 148 bytes.
    const REFUSAL: &'static [u8];

    /// A peer asks for a connection. Process context, under handler mutexes of the listener and of
    /// the request, so do not [attach](IncomingRequest::attach) it here: keep it for a worker, or
    /// refuse it by dropping it or with [`IncomingRequest::reject`].
    fn request(&self, request: IncomingRequest);
}

/// What the context of an identifier points to that nobody has attached yet.
struct Unattached {
    state: State,
    /// Number of the first event plus one, 0 before that; then its status.
    event: Atomic<u32>,
    status: Atomic<i32>,
}

impl Unattached {
    /// # Safety
    ///
    /// Only for the connection manager, as handler of the identifier of a [`Request`].
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The manager gives a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: `Request` keeps the context until the identifier is destroyed or has another one.
        let this = unsafe { &*context.cast::<Self>() };
        // SAFETY: The manager gives a valid event.
        this.remember(unsafe { &*event });
        0
    }

    fn remember(&self, event: &bindings::rdma_cm_event) {
        // The handler mutex orders this with `recall`.
        if self.event.load(ordering::Relaxed) == 0 {
            self.status.store(event.status, ordering::Relaxed);
            self.event
                .store(event.event.wrapping_add(1), ordering::Relaxed);
        }
    }

    fn recall(&self) -> Option<bindings::rdma_cm_event> {
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
struct Request {
    raw: NonNull<bindings::rdma_cm_id>,
    context: Arc<Unattached>,
    /// What the peer is told if nobody attaches it.
    refusal: &'static [u8],
}

// SAFETY: The manager locks; any thread may use and destroy an identifier.
unsafe impl Send for Request {}
// SAFETY: As above.
unsafe impl Sync for Request {}

impl Drop for Request {
    fn drop(&mut self) {
        // The manager would reject it, too, but without a reason.
        // SAFETY: By the type invariants the identifier is ours.
        unsafe { cm::reject(self.raw, self.refusal) };
        // SAFETY: As above.
        unsafe { self.context.state.destroy(self.raw.as_ptr()) };
    }
}

/// A peer's request for a connection. Dropping it rejects it, and sleeps.
pub(crate) struct IncomingRequest {
    request: Request,
    local: SocketAddr,
    remote: SocketAddr,
    private_data: [u8; Self::MAX_DATA],
    private_data_len: u8,
    responder_resources: u8,
    initiator_depth: u8,
}

impl IncomingRequest {
    /// The connection manager counts private data in a byte.
    const MAX_DATA: usize = u8::MAX as usize;

    fn new(request: Request, conn: &bindings::rdma_conn_param) -> Option<Self> {
        let raw = request.raw;
        let mut private_data = [0; Self::MAX_DATA];
        // SAFETY: `conn` belongs to the event that is being handled.
        for (to, from) in private_data.iter_mut().zip(unsafe { event_data(conn) }) {
            *to = *from;
        }
        Some(Self {
            // SAFETY: The identifier is alive; the addresses of a request do not change.
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

    /// The address that the peer asked for.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        self.remote
    }

    /// The number of the network interface that the request came through, which the addresses do not always
    /// tell.
    pub(crate) fn interface(&self) -> u32 {
        // SAFETY: The identifier is alive; it belongs to an interface from its beginning.
        unsafe { bindings::rds_rust_rdma_interface(self.request.raw.as_ptr()) }
    }

    /// The device that the request came through.
    pub(crate) fn device(&self) -> Option<ARef<Device>> {
        // SAFETY: The identifier is alive.
        let device = unsafe { bindings::rds_rust_rdma_device(self.request.raw.as_ptr()) };
        // SAFETY: The device stays in memory as long as an identifier is bound to it.
        unsafe { Device::try_get(device) }
    }

    /// The GIDs that the request names, if it has come over RoCE: ours and the peer's. Our answers go where they say.
    pub(crate) fn named_gids(&self) -> Option<([u8; 16], [u8; 16])> {
        let mut named = bindings::rds_rust_rdma_named::default();
        // SAFETY: The identifier is alive; the path of a request does not change.
        unsafe { bindings::rds_rust_rdma_named(self.request.raw.as_ptr(), &mut named) }
            .then_some((named.local_gid, named.peer_gid))
    }

    /// What the peer sent along: 56 bytes on InfiniBand and RoCE, padded with zeros; up to 255 on
    /// iWARP.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.private_data
            .get(..self.private_data_len.into())
            .unwrap_or_default()
    }

    /// Whether an answer has a way out, as [`CmId::path_is_up`]. Any context.
    pub(crate) fn path_is_up(&self) -> bool {
        // SAFETY: The identifier is alive; it belongs to an interface from its beginning.
        unsafe { bindings::rds_rust_rdma_path_is_up(self.request.raw.as_ptr()) }
    }

    /// Whether the peer has withdrawn it, or its device goes: nobody waits for an answer any more. Any
    /// context.
    pub(crate) fn has_ended(&self) -> bool {
        self.request.context.event.load(ordering::Relaxed) != 0
    }

    /// Whether the peer has withdrawn it, before anything else happened to it: to drop it sends nothing. Any context.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let rejected = bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED;
        self.request.context.event.load(ordering::Relaxed) == rejected.wrapping_add(1)
    }

    /// RDMA reads and atomics that the peer wants to have outstanding: a limit for
    /// [`responder_resources`](super::ConnParams::responder_resources).
    pub(crate) fn responder_resources(&self) -> u8 {
        self.responder_resources
    }

    /// RDMA reads and atomics that the peer can serve: a limit for
    /// [`initiator_depth`](super::ConnParams::initiator_depth).
    pub(crate) fn initiator_depth(&self) -> u8 {
        self.initiator_depth
    }

    /// Rejects the request, with up to 148 bytes of data. May sleep.
    pub(crate) fn reject(mut self, private_data: &'static [u8]) {
        self.request.refusal = private_data;
    }

    /// Makes `handler` the one that gets the identifier's events from now on; what happened
    /// meanwhile it gets before this returns. A request that cannot be attached is rejected.
    /// `EBUSY` within [`RequestHandler::request`]. Process context; sleeps.
    pub(crate) fn attach<E: CmHandler>(self, handler: Arc<E>) -> Result<CmId<E>> {
        if self.request.context.state.in_handler() {
            return Err(EBUSY);
        }
        let request = ManuallyDrop::new(self.request);
        let raw = request.raw;
        // SAFETY: The field is not used again, as it is in a `ManuallyDrop`.
        let context = unsafe { core::ptr::read(&request.context) };
        // SAFETY: The identifier is ours and now given up. Its handler does not run in this task.
        unsafe { CmId::adopt(raw, handler, request.refusal, || context.recall()) }
    }
}

/// What the context of a listening identifier points to.
struct ListenContext<L> {
    handler: Arc<L>,
}

/// A listening identifier. Dropping it sleeps, and must not happen in its handler, which is not
/// called any more afterwards.
///
/// # Invariants
///
/// `raw` is an identifier that `self` owns; its context is `_context`.
pub(crate) struct Listener<L: RequestHandler> {
    raw: NonNull<bindings::rdma_cm_id>,
    _context: Arc<ListenContext<L>>,
}

// SAFETY: The manager locks; any thread may destroy an identifier.
unsafe impl<L: RequestHandler> Send for Listener<L> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<L: RequestHandler> Sync for Listener<L> {}

impl<L: RequestHandler> Listener<L> {
    /// Listens at `addr` on all devices that have it, or on all there are and will be if it is
    /// unspecified. An IPv6 listener does not take IPv4 requests. May sleep.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if somebody has the port.
    pub(crate) fn new(addr: &SocketAddr, backlog: u16, handler: Arc<L>) -> Result<Self> {
        let context = Arc::new(ListenContext { handler }, GFP_KERNEL)?;
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: The context lives until after the identifier is destroyed.
        let raw = unsafe { bindings::rds_rust_rdma_create_id(Some(Self::on_event), pointer) };
        // INVARIANT: New, with this context.
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
        // SAFETY: The identifier is alive; the manager copies the address.
        let bound = unsafe { bindings::rdma_bind_addr(raw, storage.as_mut_ptr()) };
        to_result(bound).map_err(|error| {
            // The manager's word for a port that is taken, if either side has all addresses.
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

    /// Where it listens, with the port that it was given if it asked for none.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: The identifier is alive; its address does not change.
        unsafe { cm::local_addr(self.raw) }
    }

    /// The listener's own events, and the first one of each new identifier.
    ///
    /// # Safety
    ///
    /// Only for the connection manager, as handler of the identifier of a [`Listener`].
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The manager gives a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: By the type invariants; destroying the listener waits for this handler.
        let context = unsafe { ArcBorrow::<ListenContext<L>>::from_raw(context.cast()) };
        // SAFETY: The manager gives a valid event.
        let event = unsafe { &*event };
        // SAFETY: Identifier and event are those of the call.
        unsafe { context.on_event(id, event) }
    }
}

impl<L: RequestHandler> ListenContext<L> {
    /// Returns what the manager must know: not zero if the identifier is to be destroyed.
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
            state: State::new(),
            event: Atomic::new(0),
            status: Atomic::new(0),
        };
        let Some(raw) = NonNull::new(id) else {
            return EINVAL.to_errno();
        };
        let Ok(context) = Arc::new(unattached, GFP_KERNEL) else {
            // SAFETY: The identifier is alive, and that of a request.
            unsafe { cm::reject(raw, L::REFUSAL) };
            // With ENOMEM the manager of InfiniBand and RoCE rejects nothing, if that has not, and
            // the peer asks again more than 4 s later only.
            return EAGAIN.to_errno();
        };
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: The manager holds the handler lock of the new identifier. The context lives until
        // after the identifier is destroyed.
        unsafe { bindings::rds_rust_rdma_set_context(id, Some(Unattached::on_event), pointer) };
        // INVARIANT: The identifier of a request is for its handler to own.
        let request = Request {
            raw,
            context: context.clone(),
            refusal: L::REFUSAL,
        };
        // SAFETY: Of the union's members this event has `conn`.
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
        // SAFETY: By the type invariants the identifier is ours.
        unsafe { bindings::rdma_destroy_id(self.raw.as_ptr()) };
    }
}
