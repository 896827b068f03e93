// SPDX-License-Identifier: GPL-2.0

//! Events of TCP sockets, and what may be done with a socket in one.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)
//!
//! Ownership: a hook keeps the receiver of the events, and the socket keeps its hook. No event
//! returns an error.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Event of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpEvent {
    /// Bytes have arrived, or a listener has a connection to accept.
    Readable,
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
    /// socket.
    fn event(self: &Arc<Self>, event: TcpEvent);
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
    /// Creates a hook that is not attached.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(events: Arc<E>) -> Result<KBox<dyn AnyHook>> {
        let raw = bindings::rds_tcp_hook {
            event: Some(Self::event),
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
    /// Only for the helpers, with an attached hook of type `E`.
    unsafe extern "C" fn event(hook: *mut bindings::rds_tcp_hook, event: bindings::rds_tcp_event) {
        // SAFETY: `raw` is the first field of a hook that lives while it is attached.
        let this = unsafe { &*hook.cast::<Self>() };
        this.events.event(match event {
            bindings::rds_tcp_event_RDS_TCP_READABLE => TcpEvent::Readable,
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
