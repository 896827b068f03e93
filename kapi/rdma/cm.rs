// SPDX-License-Identifier: GPL-2.0

//! Connection identifiers of the RDMA connection manager (CM).
//!
//! # Context
//!
//! The CM calls [`CmHandler::event`] in process context and holds the identifier's handler mutex.
//! So there is one event at a time for each identifier.
//!
//! Destruction of an identifier waits for its handler mutex. So a handler must not drop a [`CmId`],
//! with one exception: its own. The CM destroys that one when the handler returns.
//!
//! A caller that drops a [`CmId`] must not hold a lock that the handler takes.
//!
//! # Ownership
//!
//! A queue pair holds a reference to its identifier. So the last [`CmId`] may be dropped before the
//! queue pair.

use super::{
    addr::{
        self,
        Storage, //
    },
    cm_event::{
        CmEvent,
        ConnParams, //
    },
    cm_state::{
        CmState,
        HandlerLock, //
    },
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

/// Handler of the events of a connection identifier.
pub(crate) trait CmHandler: Send + Sync + 'static {
    /// Handles an event. See the module documentation for restrictions.
    ///
    /// # Context
    ///
    /// Process context, with the identifier's handler mutex held; may sleep.
    fn event(&self, event: CmEvent<'_>);
}

/// The object to which the context of an identifier points.
struct IdContext<E> {
    state: CmState,
    handler: Arc<E>,
}

/// A connection identifier, its context and the answer to its request.
///
/// # Invariants
///
/// `raw` is an identifier that `self` owns; its context is `context`, with [`Inner::on_event`] as
/// handler.
struct Inner<E: CmHandler> {
    raw: NonNull<bindings::rdma_cm_id>,
    context: Arc<IdContext<E>>,
    /// Private data of the rejection, if the peer's request is not accepted. `None` without a
    /// request.
    refusal: Option<&'static [u8]>,
    /// The request was accepted, or an attempt to accept it was made.
    answered: Atomic<bool>,
}

// SAFETY: The CM has locks. An identifier may be used and destroyed from any thread.
unsafe impl<E: CmHandler> Send for Inner<E> {}
// SAFETY: As above.
unsafe impl<E: CmHandler> Sync for Inner<E> {}

impl<E: CmHandler> Inner<E> {
    /// Event handler of an identifier, called by the CM.
    ///
    /// # Safety
    ///
    /// Only for the CM, as handler of an identifier whose context is an `IdContext<E>` in an `Arc`
    /// that outlives the identifier.
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The CM passes a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: The context is an `IdContext<E>` that outlives the identifier. Destruction of the
        // identifier waits for this handler.
        let context: Arc<_> = unsafe { ArcBorrow::<IdContext<E>>::from_raw(context.cast()) }.into();
        // SAFETY: The CM passes a valid identifier.
        let by_reset = unsafe { bindings::rds_rust_rdma_refuses_by_reset(id) };
        // SAFETY: The CM passes a valid event.
        let event = CmEvent::new(unsafe { &*event }, by_reset);
        context.state.handle(|| context.handler.event(event))
    }
}

impl<E: CmHandler> Drop for Inner<E> {
    fn drop(&mut self) {
        if let (Some(refusal), false) = (self.refusal, self.answered.load(ordering::Relaxed)) {
            // SAFETY: By the type invariants `self` owns the identifier.
            unsafe { reject(self.raw, refusal) };
        }
        // SAFETY: By the type invariants `self` owns the identifier. A queue pair would hold a
        // reference to `self`, so there is none.
        unsafe { self.context.state.destroy(self.raw.as_ptr()) };
    }
}

/// RNR NAK timer: the time that a peer waits before it retries a send for which no receive was
/// posted.
///
/// Source: InfiniBand Architecture Specification, volume 1, table "Encoding for RNR NAK Timer
/// Field".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RnrTimer {
    Microseconds40 = 4,
    Milliseconds20 = 22,
}

/// The operations on a connection identifier that its queue pair needs.
pub(super) trait Anchor: Send + Sync {
    /// Creates the only queue pair that the identifier ever has.
    fn create_qp(
        &self,
        pd: *mut bindings::ib_pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<*mut bindings::ib_qp>;

    /// Destroys the queue pair from [`Self::create_qp`]. The caller owns it.
    fn destroy_qp(&self);
}

impl<E: CmHandler> Anchor for Inner<E> {
    fn create_qp(
        &self,
        pd: *mut bindings::ib_pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<*mut bindings::ib_qp> {
        if self.context.state.has_qp.xchg(true, ordering::Full) {
            return Err(EBUSY);
        }
        let raw = self.raw.as_ptr();
        // SAFETY: Identifier and protection domain are alive. The CM checks that their devices
        // match.
        to_result(unsafe { bindings::rdma_create_qp(raw, pd, attr) })?;
        // SAFETY: The identifier is alive and has a queue pair.
        Ok(unsafe { bindings::rds_rust_rdma_qp(raw) })
    }

    fn destroy_qp(&self) {
        // SAFETY: The identifier is alive, and the caller owns its queue pair.
        unsafe { bindings::rdma_destroy_qp(self.raw.as_ptr()) };
    }
}

/// A connection identifier whose events go to an `E`.
///
/// Clones refer to the same identifier. It is destroyed when the last clone and its queue pair are
/// dropped, which sleeps: see the module documentation.
///
/// The handler usually holds a `CmId` itself. It must be taken out to break that cycle.
///
/// # Context
///
/// Methods without this section may sleep.
pub(crate) struct CmId<E: CmHandler>(Arc<Inner<E>>);

impl<E: CmHandler> Clone for CmId<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: CmHandler> CmId<E> {
    /// Creates an identifier for an outgoing connection in a network namespace, which does not end
    /// as long as the identifier exists. There are no events before [`Self::resolve_addr`].
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the namespace ends.
    /// - `ENOMEM`, or errors of the CM.
    pub(crate) fn new(net: &NetRef, handler: Arc<E>) -> Result<Self> {
        let in_use = net.try_use()?;
        let context = IdContext {
            state: CmState::new(),
            handler,
        };
        let context = Arc::new(context, GFP_KERNEL)?;
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        let net = in_use.as_raw();
        // SAFETY: The namespace is alive as long as its use. The context outlives the identifier.
        let raw =
            unsafe { bindings::rds_rust_rdma_create_id(net, Some(Inner::<E>::on_event), pointer) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: The identifier is new and has this context.
        let inner = Inner {
            raw,
            context,
            refusal: None,
            answered: Atomic::new(false),
        };
        Ok(Self(Arc::new(inner, GFP_KERNEL)?))
    }

    /// Makes `handler` the handler of `raw`, the identifier of a request.
    ///
    /// `earlier` returns an event that the previous handler has stored, if any. It is handled
    /// before this function returns. Unless the request is accepted, it is rejected with `refusal`
    /// in the end.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`. The request is rejected then.
    ///
    /// # Safety
    ///
    /// The caller must own `raw` and give it up. Its handler must not be running in this task.
    pub(super) unsafe fn adopt(
        raw: NonNull<bindings::rdma_cm_id>,
        handler: Arc<E>,
        refusal: &'static [u8],
        earlier: impl FnOnce() -> Option<bindings::rdma_cm_event>,
    ) -> Result<Self> {
        let context = IdContext {
            state: CmState::new(),
            handler,
        };
        let context = match Arc::new(context, GFP_KERNEL) {
            Ok(context) => context,
            Err(error) => {
                // SAFETY: The caller has passed the ownership of the identifier.
                unsafe { reject(raw, refusal) };
                // SAFETY: As above.
                unsafe { bindings::rdma_destroy_id(raw.as_ptr()) };
                return Err(error.into());
            }
        };
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // An identifier of a request has a connection object in the CM.
        context.state.connecting.store(true, ordering::Relaxed);
        let locked = HandlerLock::new(raw, &context.state);
        // SAFETY: The handler lock is held; the context lives until the identifier is destroyed.
        unsafe {
            bindings::rds_rust_rdma_set_context(raw.as_ptr(), Some(Inner::<E>::on_event), pointer)
        };
        if let Some(event) = earlier() {
            // For a request of the peer, a connection reset is not a rejection.
            let event = CmEvent::new(&event, false);
            // No `CmId` exists yet that the handler could drop.
            context.state.handle(|| context.handler.event(event));
        }
        drop(locked);
        // INVARIANT: The context was set above.
        let inner = Inner {
            raw,
            context,
            refusal: Some(refusal),
            answered: Atomic::new(false),
        };
        Ok(Self(Arc::new(inner, GFP_KERNEL)?))
    }

    fn raw(&self) -> *mut bindings::rdma_cm_id {
        self.0.raw.as_ptr()
    }

    fn state(&self) -> &CmState {
        &self.0.context.state
    }

    /// Locks the identifier's handler mutex. Meanwhile the CM does not change the identifier.
    pub(super) fn lock(&self) -> HandlerLock<'_> {
        HandlerLock::new(self.0.raw, self.state())
    }

    pub(super) fn anchor(&self) -> Arc<dyn Anchor> {
        self.0.clone()
    }

    /// Starts the search for the device that reaches `dst`. It ends in [`CmEvent::AddrResolved`] or
    /// an error event.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if the function was called before for this identifier.
    /// - Errors of the CM.
    pub(crate) fn resolve_addr(
        &self,
        src: Option<&SocketAddr>,
        dst: &SocketAddr,
        timeout_ms: u32,
    ) -> Result {
        if self.state().resolving.xchg(true, ordering::Full) {
            return Err(EBUSY);
        }
        let mut src = src.map(Storage::new);
        let mut dst = Storage::new(dst);
        let src = src
            .as_mut()
            .map_or(core::ptr::null_mut(), Storage::as_mut_ptr);
        let dst = dst.as_mut_ptr();
        // CAST: a `long` has at least 32 bits.
        let timeout = timeout_ms as c_ulong;
        let _lock = self.lock();
        // SAFETY: The identifier is alive. The CM copies the addresses.
        to_result(unsafe { bindings::rdma_resolve_addr(self.raw(), src, dst, timeout) })
    }

    /// Starts the search for the route to the resolved address. It ends in
    /// [`CmEvent::RouteResolved`] or an error event.
    ///
    /// # Errors
    ///
    /// - Errors of the CM.
    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result {
        // CAST: a `long` has at least 32 bits.
        let timeout = timeout_ms as c_ulong;
        let _lock = self.lock();
        // SAFETY: The identifier is alive. The CM checks its state.
        to_result(unsafe { bindings::rdma_resolve_route(self.raw(), timeout) })
    }

    /// Returns `true` if a subnet administrator provides the route. `false` before the address is
    /// resolved.
    pub(crate) fn has_subnet_administrator(&self) -> bool {
        let _lock = self.lock();
        // SAFETY: The identifier is alive. Its handler, which may change the device, does not run.
        unsafe { bindings::rds_rust_rdma_has_sa(self.raw()) }
    }

    /// Sets the type of service. It has an effect on later resolutions.
    pub(crate) fn set_service_type(&self, tos: u8) {
        let _lock = self.lock();
        // SAFETY: The identifier is alive.
        unsafe { bindings::rdma_set_service_type(self.raw(), tos.into()) };
    }

    /// Sets the service level, if the route comes from a subnet manager. It replaces the one in the
    /// route. Called before [`Self::connect`].
    pub(crate) fn set_service_level(&self, level: u8) {
        let _lock = self.lock();
        // SAFETY: The identifier is alive, and its handler mutex is held.
        unsafe { bindings::rds_rust_rdma_set_service_level(self.raw(), level) };
    }

    /// Sets the RNR NAK timer. The default is 655 ms. Called before [`Self::connect`] or
    /// [`Self::accept`].
    ///
    /// # Errors
    ///
    /// - Errors of the CM.
    pub(crate) fn set_rnr_timer(&self, timer: RnrTimer) -> Result {
        // SAFETY: The identifier is alive. Its type has reliable connections.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.raw(), timer as u8) })
    }

    /// Sends a connection request to the peer. The queue pair must exist.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if the peer's TCP has not answered within `timeout_ms`. Only iWARP waits for
    ///   it here.
    /// - Errors of the CM.
    ///
    /// # Context
    ///
    /// Kernel thread; may sleep.
    pub(crate) fn connect(&self, params: &ConnParams<'_>, timeout_ms: u32) -> Result {
        let mut params = params.raw()?;
        let _lock = self.lock();
        // SAFETY: The identifier is alive and its handler mutex is held. The CM copies the data.
        to_result(unsafe {
            bindings::rds_rust_rdma_connect_locked(self.raw(), &mut params, timeout_ms)
        })?;
        self.state().connecting.store(true, ordering::Release);
        Ok(())
    }

    /// Accepts the peer's request. The queue pair must exist.
    ///
    /// # Errors
    ///
    /// - Errors of the CM. The request is rejected then.
    pub(crate) fn accept(&self, params: &ConnParams<'_>) -> Result {
        let mut params = params.raw()?;
        // A rejection after an attempt to accept would leave the CM waiting for the answer to its
        // reply.
        self.0.answered.store(true, ordering::Relaxed);
        let _lock = self.lock();
        // SAFETY: The identifier is alive and its handler mutex is held. The CM copies the data.
        to_result(unsafe { bindings::rdma_accept(self.raw(), &mut params) })
    }

    /// Checks that the CM's connection object is permanent: [`Self::connect`] has succeeded, or the
    /// identifier comes from a request.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` otherwise.
    fn check_connecting(&self) -> Result {
        match self.state().connecting.load(ordering::Acquire) {
            true => Ok(()),
            false => Err(Errno::NotConnected.into()),
        }
    }

    /// Ends the connection. The queue pair changes to the error state.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if there is no connection.
    /// - Errors of the CM.
    pub(crate) fn disconnect(&self) -> Result {
        self.check_connecting()?;
        // The handler mutex is not held: iWARP waits here until its handler has returned.
        // SAFETY: The identifier is alive.
        to_result(unsafe { bindings::rdma_disconnect(self.raw()) })
    }

    /// Returns `true` if the resolved hardware address is a multicast address, so several nodes may
    /// receive what is sent.
    pub(crate) fn is_multicast(&self) -> bool {
        let _lock = self.lock();
        // SAFETY: The identifier is alive. Its handler, which may change the address, does not run.
        unsafe { bindings::rds_rust_rdma_is_multicast(self.raw()) }
    }

    /// Returns `true` if the network device of the path is up, so CM messages can be sent. `false`
    /// before the address is resolved.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn path_is_up(&self) -> bool {
        // SAFETY: The identifier is alive. The path's device does not change once it is resolved.
        unsafe { bindings::rds_rust_rdma_path_is_up(self.raw()) }
    }

    /// Returns the local GID, the peer's GID, and the service level of the path. The path must be
    /// resolved.
    pub(crate) fn path(&self) -> ([u8; 16], [u8; 16], u8) {
        let mut path = bindings::rds_rust_rdma_path::default();
        let _lock = self.lock();
        // SAFETY: The identifier is alive. Its handler, which may change the path, does not run.
        unsafe { bindings::rds_rust_rdma_path(self.raw(), &mut path) };
        (path.local_gid, path.peer_gid, path.service_level)
    }

    /// Returns the device to which the identifier is bound. `None` if there is none, or it is being
    /// removed, or does not serve the network namespace of the identifier.
    pub(crate) fn device(&self) -> Option<ARef<IbDevice>> {
        let _lock = self.lock();
        // SAFETY: The identifier is alive.
        let device = unsafe { bindings::rds_rust_rdma_device(self.raw()) };
        // SAFETY: The device stays in memory as long as an identifier is bound to it.
        unsafe { IbDevice::try_get(device) }
    }
}

/// Rejects a request. Nothing is sent if the request was answered or has ended.
///
/// # Context
///
/// May sleep.
///
/// # Safety
///
/// `raw` must be alive.
pub(super) unsafe fn reject(raw: NonNull<bindings::rdma_cm_id>, private_data: &[u8]) {
    // The only reason code for consumers of the CM (IBTA specification).
    const CONSUMER_DEFINED: u8 = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
    let len = private_data.len().try_into().unwrap_or(0);
    let data = private_data.as_ptr().cast();
    // An error is ignored: the peer retries with or without the rejection.
    // SAFETY: By the caller's guarantee the identifier is alive. The CM copies the data.
    let _ = unsafe { bindings::rdma_reject(raw.as_ptr(), data, len, CONSUMER_DEFINED) };
}

/// Returns the local address of an identifier.
///
/// # Safety
///
/// `raw` must be alive, and its address must not change meanwhile.
pub(super) unsafe fn local_addr(raw: NonNull<bindings::rdma_cm_id>) -> Option<SocketAddr> {
    // SAFETY: By the caller's guarantee the identifier is alive.
    let addr = unsafe { bindings::rds_rust_rdma_local_addr(raw.as_ptr()) };
    // SAFETY: The address is a part of the identifier, and does not change by the caller's
    // guarantee.
    unsafe { addr::read(addr) }
}

/// Returns the peer's address of an identifier.
///
/// # Safety
///
/// `raw` must be alive, and its address must not change meanwhile.
pub(super) unsafe fn remote_addr(raw: NonNull<bindings::rdma_cm_id>) -> Option<SocketAddr> {
    // SAFETY: By the caller's guarantee the identifier is alive.
    let addr = unsafe { bindings::rds_rust_rdma_remote_addr(raw.as_ptr()) };
    // SAFETY: The address is a part of the identifier, and does not change by the caller's
    // guarantee.
    unsafe { addr::read(addr) }
}
