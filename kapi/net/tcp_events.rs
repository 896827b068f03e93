// SPDX-License-Identifier: GPL-2.0

//! Events of TCP sockets, and what may be done with a socket in one.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)
//!
//! Ownership: a hook keeps the receiver of the events, and the socket keeps its hook. No event
//! returns an error.

use super::packet::{
    PacketPart,
    TakeLimits, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Event of a socket.
pub(crate) enum TcpEvent<'a> {
    /// A listener has a connection to accept.
    Acceptable,
    /// Bytes have arrived. They may be received at once.
    Readable(LockedSocket<'a>),
    /// There is room for bytes, or the peer's TCP has acknowledged some.
    Writable,
    /// The connection is up, or has ended.
    State,
}

/// Receiver of the events of a socket.
pub(crate) trait TcpEvents: Send + Sync + 'static {
    /// Handles an event.
    ///
    /// # Context
    ///
    /// Softirq, or process context with the socket locked. It must not call a function of the
    /// [`TcpSocket`](super::tcp::TcpSocket).
    fn event(self: &Arc<Self>, event: TcpEvent<'_>);
}

/// Source of a stream of bytes.
pub(crate) trait TcpSource {
    /// Receives bytes, up to the length of `to`, which is not 0.
    fn recv(&self, to: &mut [u8]) -> TcpRead;

    /// Takes the next bytes without a copy, if all parts together hold at most `held` bytes
    /// then. Returns `None` if they are to be copied, or none have arrived.
    fn take(&self, limits: TakeLimits, held: usize) -> Option<PacketPart>;
}

/// A socket that the stack has locked for an event.
///
/// # Invariants
///
/// `raw` is a socket of a connection. The caller of the event has locked it for `'a`.
pub(crate) struct LockedSocket<'a> {
    raw: NonNull<bindings::sock>,
    _event: PhantomData<&'a bindings::sock>,
}

impl LockedSocket<'_> {
    /// Returns `true` if something is left that only [`TcpSocket`](super::tcp::TcpSocket) receives:
    /// urgent bytes, or the end of the stream.
    pub(crate) fn has_unread(&self) -> bool {
        // SAFETY: By the type invariants the socket is alive.
        unsafe { bindings::rds_rust_tcp_has_unread(self.raw.as_ptr()) }
    }
}

impl TcpSource for LockedSocket<'_> {
    fn recv(&self, to: &mut [u8]) -> TcpRead {
        let (at, len) = (to.as_mut_ptr().cast(), to.len());
        // SAFETY: By the type invariants the socket is alive and locked. At most `len` bytes are
        // written.
        let got = unsafe { bindings::rds_rust_tcp_recv_locked(self.raw.as_ptr(), at, len) };
        match usize::try_from(got) {
            Ok(got) if got > 0 => TcpRead::Bytes(got),
            _ => TcpRead::Nothing,
        }
    }

    fn take(&self, limits: TakeLimits, held: usize) -> Option<PacketPart> {
        let request = limits.raw(held)?;
        // SAFETY: By the type invariants the socket is alive and locked.
        let part = unsafe { bindings::rds_rust_skb_take_locked(self.raw.as_ptr(), &request) };
        // SAFETY: Just returned.
        unsafe { PacketPart::from_raw(part) }
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpRead {
    /// This many bytes, at least one.
    Bytes(usize),
    /// There are none yet.
    Nothing,
    /// The peer has sent all, or the connection has failed.
    End,
}

/// The C structure with the receiver of its events.
#[repr(C)]
pub(super) struct Hook<E: TcpEvents> {
    /// The first field, so that the callback can cast it to the hook.
    raw: Opaque<bindings::rds_tcp_hook>,
    events: Arc<E>,
}

impl<E: TcpEvents> Hook<E> {
    /// Creates a hook that is not attached, for a listener if `listens` is set.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn boxed(events: Arc<E>, listens: bool) -> Result<KBox<dyn AnyHook>> {
        let raw = bindings::rds_tcp_hook {
            event: Some(Self::event),
            listens,
            ..Default::default()
        };
        let hook = Self {
            raw: Opaque::new(raw),
            events,
        };
        let hook: KBox<dyn AnyHook> = KBox::new(hook, GFP_KERNEL)?;
        Ok(hook)
    }

    /// # Safety
    ///
    /// Only for the helpers, with an attached hook of type `E` and its socket. For
    /// `RDS_TCP_READABLE`, that is a locked socket of a connection.
    unsafe extern "C" fn event(
        hook: *mut bindings::rds_tcp_hook,
        event: bindings::rds_tcp_event,
        sk: *mut bindings::sock,
    ) {
        // SAFETY: `raw` is the first field of a hook that lives while it is attached.
        let this = unsafe { &*hook.cast::<Self>() };
        this.events.event(match event {
            bindings::rds_tcp_event_RDS_TCP_ACCEPTABLE => TcpEvent::Acceptable,
            bindings::rds_tcp_event_RDS_TCP_READABLE => match NonNull::new(sk) {
                // INVARIANT: By the caller's guarantee.
                Some(raw) => TcpEvent::Readable(LockedSocket {
                    raw,
                    _event: PhantomData,
                }),
                None => return,
            },
            bindings::rds_tcp_event_RDS_TCP_WRITABLE => TcpEvent::Writable,
            _ => TcpEvent::State,
        });
    }
}

/// An attached hook whatever receives its events.
pub(super) trait AnyHook: Send + Sync {
    fn raw(&self) -> *mut bindings::rds_tcp_hook;
}

impl<E: TcpEvents> AnyHook for Hook<E> {
    fn raw(&self) -> *mut bindings::rds_tcp_hook {
        self.raw.get()
    }
}

// SAFETY: The C structure has a constant, and flags that are read and written with READ_ONCE() and
// WRITE_ONCE().
unsafe impl<E: TcpEvents> Send for Hook<E> {}
// SAFETY: As above.
unsafe impl<E: TcpEvents> Sync for Hook<E> {}
