// SPDX-License-Identifier: GPL-2.0

//! Connection identifiers of the RDMA connection manager.
//!
//! # Context
//!
//! The manager calls [`CmHandler::event`] in process context, one event at a time for one
//! identifier, holding a mutex of its own. Destroying an identifier waits for that mutex, so it
//! must not happen in a handler, with one exception that the manager offers: the handler's own
//! identifier. A [`CmId`] that is dropped in its own handler is destroyed by the manager when the
//! handler returns. Do not drop other identifiers in a handler, nor hold a lock while dropping one
//! that its handler takes.
//!
//! # Order
//!
//! A queue pair keeps the identifier that it belongs to, so the last [`CmId`] may be dropped before
//! the queue pair is.

use super::{
    addr,
    addr::Storage,
    cm_event::{CmEvent, ConnParams},
    device::Device,
};
use crate::{bindings, kapi::errno::Errno};
use core::{net::SocketAddr, ptr::NonNull};
use kernel::{
    current,
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{ordering, Atomic},
        Arc, ArcBorrow,
    },
    task::Task,
    types::NotThreadSafe,
};

/// What happens to a connection identifier.
pub(crate) trait CmHandler: Send + Sync + 'static {
    /// An event. Process context, under the identifier's handler mutex; may sleep. See the module's
    /// documentation for what not to do here.
    fn event(&self, event: CmEvent<'_>);
}

/// Who is in the handler of an identifier, and what was done with the identifier.
pub(super) struct State {
    /// The task that runs the handler, as an address; 0 if none does.
    running: Atomic<usize>,
    /// The identifier was dropped in its handler.
    dropped: Atomic<bool>,
    /// Resolution was started. The manager does not bear a second one.
    resolving: Atomic<bool>,
    /// A queue pair was made.
    has_qp: Atomic<bool>,
    /// There is a connection, or was: the manager's connection object stays until the end. Before
    /// that it may go again when connecting fails, so nothing may use it.
    connecting: Atomic<bool>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            running: Atomic::new(0),
            dropped: Atomic::new(false),
            resolving: Atomic::new(false),
            has_qp: Atomic::new(false),
            connecting: Atomic::new(false),
        }
    }

    fn this_task() -> usize {
        core::ptr::from_ref::<Task>(&**current!()) as usize
    }

    /// Whether the caller runs within the identifier's handler.
    pub(super) fn in_handler(&self) -> bool {
        // Only this task stores its own address, so an older value does not matter.
        self.running.load(ordering::Relaxed) == Self::this_task()
    }

    /// Runs `f` as the identifier's handler. Returns what the manager must know: not zero if the
    /// identifier is to be destroyed.
    pub(super) fn handle(&self, f: impl FnOnce()) -> c_int {
        self.running.store(Self::this_task(), ordering::Relaxed);
        f();
        self.running.store(0, ordering::Relaxed);
        self.dropped.load(ordering::Relaxed).into()
    }

    /// Destroys the identifier, or has the manager do it if the caller runs within its handler.
    ///
    /// # Safety
    ///
    /// `id` must be an identifier with this state that the caller owns and gives up.
    pub(super) unsafe fn destroy(&self, id: *mut bindings::rdma_cm_id) {
        if self.in_handler() {
            self.dropped.store(true, ordering::Relaxed);
        } else {
            // SAFETY: The caller owns the identifier.
            unsafe { bindings::rdma_destroy_id(id) };
        }
    }
}

/// What the context of an identifier points to.
struct IdContext<E> {
    state: State,
    handler: Arc<E>,
}

/// # Invariants
///
/// `raw` is an identifier that `self` owns; its context is `context`, with [`Inner::on_event`] as
/// handler.
struct Inner<E: CmHandler> {
    raw: NonNull<bindings::rdma_cm_id>,
    context: Arc<IdContext<E>>,
    /// What the peer is told if its request is not accepted. None if it did not ask.
    refusal: Option<&'static [u8]>,
    /// The request was accepted, or that was tried.
    answered: Atomic<bool>,
}

// SAFETY: The manager locks; any thread may use and destroy an identifier.
unsafe impl<E: CmHandler> Send for Inner<E> {}
// SAFETY: As above.
unsafe impl<E: CmHandler> Sync for Inner<E> {}

impl<E: CmHandler> Inner<E> {
    /// # Safety
    ///
    /// Only for the connection manager, as handler of an identifier whose context is an `IdContext<E>`
    /// in an `Arc` that outlives the identifier.
    unsafe extern "C" fn on_event(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: The manager gives a valid identifier.
        let context = unsafe { bindings::rds_rust_rdma_context(id) };
        // SAFETY: By the type invariants; destroying the identifier waits for this handler.
        let context: Arc<_> = unsafe { ArcBorrow::<IdContext<E>>::from_raw(context.cast()) }.into();
        // SAFETY: The manager gives a valid identifier.
        let by_reset = unsafe { bindings::rds_rust_rdma_refuses_by_reset(id) };
        // SAFETY: The manager gives a valid event.
        let event = CmEvent::new(unsafe { &*event }, by_reset);
        context.state.handle(|| context.handler.event(event))
    }
}

impl<E: CmHandler> Drop for Inner<E> {
    fn drop(&mut self) {
        if let (Some(refusal), false) = (self.refusal, self.answered.load(ordering::Relaxed)) {
            // SAFETY: By the type invariants the identifier is ours.
            unsafe { reject(self.raw, refusal) };
        }
        // SAFETY: By the type invariants the identifier is ours; its queue pair holds a reference.
        unsafe { self.context.state.destroy(self.raw.as_ptr()) };
    }
}

/// A time that a peer waits for us to post receives.
///
/// Source: InfiniBand Architecture Specification, volume 1, table "Encoding for RNR NAK Timer Field".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RnrTimer {
    Microseconds40 = 4,
    Milliseconds20 = 22,
}

/// What a queue pair needs of its identifier.
pub(super) trait Anchor: Send + Sync {
    /// Makes the identifier's only queue pair ever.
    fn create_qp(
        &self,
        pd: *mut bindings::ib_pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<*mut bindings::ib_qp>;

    /// Destroys what [`Self::create_qp`] made; the caller owns it.
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
        // SAFETY: Identifier and protection domain are alive; the manager compares their devices.
        to_result(unsafe { bindings::rdma_create_qp(raw, pd, attr) })?;
        // SAFETY: The identifier is alive and has a queue pair now.
        Ok(unsafe { bindings::rds_rust_rdma_qp(raw) })
    }

    fn destroy_qp(&self) {
        // SAFETY: The identifier is alive, and the caller owns its queue pair.
        unsafe { bindings::rdma_destroy_qp(self.raw.as_ptr()) };
    }
}

/// A connection identifier whose events go to an `E`. Clones name the same identifier, which is
/// destroyed with the last one and its queue pair. Dropping sleeps; see the module's documentation.
///
/// The handler usually keeps a `CmId` of its own: take it out to end the cycle.
pub(crate) struct CmId<E: CmHandler>(Arc<Inner<E>>);

impl<E: CmHandler> Clone for CmId<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: CmHandler> CmId<E> {
    /// An identifier for a connection that is made from here. Events come once
    /// [`Self::resolve_addr`] was called. May sleep.
    pub(crate) fn new(handler: Arc<E>) -> Result<Self> {
        let context = IdContext {
            state: State::new(),
            handler,
        };
        let context = Arc::new(context, GFP_KERNEL)?;
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: The context lives until after the identifier is destroyed.
        let raw = unsafe { bindings::rds_rust_rdma_create_id(Some(Inner::<E>::on_event), pointer) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: New, with this context.
        let inner = Inner {
            raw,
            context,
            refusal: None,
            answered: Atomic::new(false),
        };
        Ok(Self(Arc::new(inner, GFP_KERNEL)?))
    }

    /// Makes `raw`, that of a request, an identifier of `handler`. If something happened to it
    /// before that the old handler remembered, `earlier` gives it, to be handled now. Unless it is
    /// accepted, the peer is told `refusal` in the end. May sleep.
    ///
    /// # Safety
    ///
    /// The caller gives up its identifier, whose handler must not be running in this task.
    pub(super) unsafe fn adopt(
        raw: NonNull<bindings::rdma_cm_id>,
        handler: Arc<E>,
        refusal: &'static [u8],
        earlier: impl FnOnce() -> Option<bindings::rdma_cm_event>,
    ) -> Result<Self> {
        let context = IdContext {
            state: State::new(),
            handler,
        };
        let context = match Arc::new(context, GFP_KERNEL) {
            Ok(context) => context,
            Err(error) => {
                // SAFETY: The caller gave the identifier to us.
                unsafe { reject(raw, refusal) };
                // SAFETY: As above.
                unsafe { bindings::rdma_destroy_id(raw.as_ptr()) };
                return Err(error.into());
            }
        };
        let pointer = Arc::as_ptr(&context).cast_mut().cast();
        // A request comes with a connection.
        context.state.connecting.store(true, ordering::Relaxed);
        let locked = HandlerLock::new(raw, &context.state);
        // SAFETY: The handler lock is held; the context lives until the identifier is destroyed.
        unsafe {
            bindings::rds_rust_rdma_set_context(raw.as_ptr(), Some(Inner::<E>::on_event), pointer)
        };
        if let Some(event) = earlier() {
            // That of a request that was accepted: it is not about a refusal.
            let event = CmEvent::new(&event, false);
            // There is no `CmId` yet that the handler could drop.
            context.state.handle(|| context.handler.event(event));
        }
        drop(locked);
        // INVARIANT: The context was set just now.
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

    fn state(&self) -> &State {
        &self.0.context.state
    }

    /// The manager does nothing to the identifier while this is held. May sleep.
    pub(super) fn lock(&self) -> HandlerLock<'_> {
        HandlerLock::new(self.0.raw, self.state())
    }

    pub(super) fn anchor(&self) -> Arc<dyn Anchor> {
        self.0.clone()
    }

    /// Starts to find out which device leads to `dst`; ends in [`CmEvent::AddrResolved`] or an
    /// error. Once for an identifier: `EBUSY` the second time. May sleep.
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
        // CAST: a `long` has 32 bits at least.
        let timeout = timeout_ms as c_ulong;
        let _lock = self.lock();
        // SAFETY: The identifier is alive; the manager copies the addresses.
        to_result(unsafe { bindings::rdma_resolve_addr(self.raw(), src, dst, timeout) })
    }

    /// Starts to find the way to the resolved address; ends in [`CmEvent::RouteResolved`] or an
    /// error. May sleep.
    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result {
        // CAST: a `long` has 32 bits at least.
        let timeout = timeout_ms as c_ulong;
        let _lock = self.lock();
        // SAFETY: The identifier is alive; the manager checks its state.
        to_result(unsafe { bindings::rdma_resolve_route(self.raw(), timeout) })
    }

    /// Sets the type of service, for what is resolved after this. May sleep.
    pub(crate) fn set_service_type(&self, tos: u8) {
        let _lock = self.lock();
        // SAFETY: The identifier is alive.
        unsafe { bindings::rdma_set_service_type(self.raw(), tos.into()) };
    }

    /// Sets the service level, in place of that which the route has, where a subnet manager has made that. Before
    /// [`Self::connect`]. May sleep.
    pub(crate) fn set_service_level(&self, level: u8) {
        let _lock = self.lock();
        // SAFETY: The identifier is alive, and its handler lock held.
        unsafe { bindings::rds_rust_rdma_set_service_level(self.raw(), level) };
    }

    /// Sets how long the peer waits before it sends again what found no receive posted; without this
    /// it is 655 ms. Before [`Self::connect`] or [`Self::accept`]. May sleep.
    pub(crate) fn set_rnr_timer(&self, timer: RnrTimer) -> Result {
        // SAFETY: The identifier is alive, and of the kind that has reliable connections.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.raw(), timer as u8) })
    }

    /// Asks the peer for the connection. The queue pair must exist. On iWARP this waits for the
    /// peer's TCP, for `timeout_ms` at the most. In a worker; may sleep.
    pub(crate) fn connect(&self, params: &ConnParams<'_>, timeout_ms: u32) -> Result {
        let mut params = params.raw()?;
        let _lock = self.lock();
        // SAFETY: The identifier is alive and its handler lock held; the manager copies the data.
        to_result(unsafe {
            bindings::rds_rust_rdma_connect_locked(self.raw(), &mut params, timeout_ms)
        })?;
        self.state().connecting.store(true, ordering::Release);
        Ok(())
    }

    /// Accepts the peer's request. The queue pair must exist. If this fails the request is
    /// rejected. May sleep.
    pub(crate) fn accept(&self, params: &ConnParams<'_>) -> Result {
        let mut params = params.raw()?;
        // A rejection after this would leave the manager waiting for what answers its reply.
        self.0.answered.store(true, ordering::Relaxed);
        let _lock = self.lock();
        // SAFETY: The identifier is alive and its handler lock held; the manager copies the data.
        to_result(unsafe { bindings::rdma_accept(self.raw(), &mut params) })
    }

    /// `ENOTCONN` unless [`Self::connect`] succeeded or the identifier comes from a request.
    fn check_connecting(&self) -> Result {
        match self.state().connecting.load(ordering::Acquire) {
            true => Ok(()),
            false => Err(Errno::NotConnected.into()),
        }
    }

    /// Ends the connection; the queue pair goes to the error state. May sleep.
    pub(crate) fn disconnect(&self) -> Result {
        self.check_connecting()?;
        // No handler lock: iWARP waits here for its own handler.
        // SAFETY: The identifier is alive.
        to_result(unsafe { bindings::rdma_disconnect(self.raw()) })
    }

    /// Whether the resolved address is a group's, so that many may get what is sent. May sleep.
    pub(crate) fn leads_to_many(&self) -> bool {
        let _lock = self.lock();
        // SAFETY: The identifier is alive; its handler, which may change the address, does not run.
        unsafe { bindings::rds_rust_rdma_leads_to_many(self.raw()) }
    }

    /// Whether the network device of the path is up, so that messages of the connection manager
    /// have a way out; false before the address is resolved. Any context.
    pub(crate) fn path_is_up(&self) -> bool {
        // SAFETY: The identifier is alive; the path's device does not change once it is resolved.
        unsafe { bindings::rds_rust_rdma_path_is_up(self.raw()) }
    }

    /// The local GID, the peer's, and the service level of the path, which is resolved. May sleep.
    pub(crate) fn path(&self) -> ([u8; 16], [u8; 16], u8) {
        let mut path = bindings::rds_rust_rdma_path::default();
        let _lock = self.lock();
        // SAFETY: The identifier is alive; its handler, which may change the path, does not run.
        unsafe { bindings::rds_rust_rdma_path(self.raw(), &mut path) };
        (path.local_gid, path.peer_gid, path.service_level)
    }

    /// The device that the identifier is bound to, unless that is going. May sleep.
    pub(crate) fn device(&self) -> Option<ARef<Device>> {
        let _lock = self.lock();
        // SAFETY: The identifier is alive.
        let device = unsafe { bindings::rds_rust_rdma_device(self.raw()) };
        // SAFETY: The device stays in memory as long as an identifier is bound to it.
        unsafe { Device::try_get(device) }
    }
}

/// The identifier's handler mutex, taken unless this task holds it because it runs the handler.
pub(super) struct HandlerLock<'a> {
    raw: NonNull<bindings::rdma_cm_id>,
    taken: bool,
    _state: core::marker::PhantomData<&'a State>,
    _not_send: NotThreadSafe,
}

impl<'a> HandlerLock<'a> {
    /// `raw` is alive as long as `state`, which is the one in its context.
    fn new(raw: NonNull<bindings::rdma_cm_id>, state: &'a State) -> Self {
        let taken = !state.in_handler();
        if taken {
            // SAFETY: The identifier is alive.
            unsafe { bindings::rdma_lock_handler(raw.as_ptr()) };
        }
        Self {
            raw,
            taken,
            _state: core::marker::PhantomData,
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for HandlerLock<'_> {
    fn drop(&mut self) {
        if self.taken {
            // SAFETY: `new` took the lock in this task.
            unsafe { bindings::rdma_unlock_handler(self.raw.as_ptr()) };
        }
    }
}

/// Rejects a request that nobody has answered; of one that was answered, or has ended, nothing
/// comes. May sleep.
///
/// # Safety
///
/// `raw` must be alive.
pub(super) unsafe fn reject(raw: NonNull<bindings::rdma_cm_id>, private_data: &[u8]) {
    // The one reason that is for users of the manager, by the InfiniBand specification.
    const CONSUMER_DEFINED: u8 = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
    let len = private_data.len().try_into().unwrap_or(0);
    let data = private_data.as_ptr().cast();
    // The peer tries again, whether it hears of it or not.
    // SAFETY: The caller says that the identifier is alive; the manager copies the data.
    let _ = unsafe { bindings::rdma_reject(raw.as_ptr(), data, len, CONSUMER_DEFINED) };
}

/// # Safety
///
/// `raw` must be alive and its address not change meanwhile.
pub(super) unsafe fn local_addr(raw: NonNull<bindings::rdma_cm_id>) -> Option<SocketAddr> {
    // SAFETY: The caller says that the identifier is alive.
    let addr = unsafe { bindings::rds_rust_rdma_local_addr(raw.as_ptr()) };
    // SAFETY: It is part of the identifier, and stable as the caller says.
    unsafe { addr::read(addr) }
}

/// # Safety
///
/// `raw` must be alive and its address not change meanwhile.
pub(super) unsafe fn remote_addr(raw: NonNull<bindings::rdma_cm_id>) -> Option<SocketAddr> {
    // SAFETY: The caller says that the identifier is alive.
    let addr = unsafe { bindings::rds_rust_rdma_remote_addr(raw.as_ptr()) };
    // SAFETY: It is part of the identifier, and stable as the caller says.
    unsafe { addr::read(addr) }
}
