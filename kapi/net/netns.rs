// SPDX-License-Identifier: GPL-2.0

//! Network namespaces: their identity, and calls of functions in them.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::{
    bindings,
    kapi::sync::Gate, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Identity of a network namespace.
///
/// It is a number for comparison, not a reference. So it remains safe to use after the namespace is
/// freed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Net {
    key: usize,
    init: bool,
}

impl Net {
    /// Returns the identity of a namespace.
    ///
    /// # Safety
    ///
    /// `net` must point to a live namespace.
    pub(super) unsafe fn from_raw(net: *mut bindings::net) -> Self {
        Self {
            key: net as usize,
            // SAFETY: By the caller's guarantee the namespace is alive.
            init: unsafe { bindings::rds_rust_net_is_init(net) },
        }
    }

    /// Returns the initial network namespace, to which RDMA devices belong.
    pub(crate) fn init() -> Self {
        // SAFETY: The function has no preconditions.
        let net = unsafe { bindings::rds_rust_init_net() };
        // SAFETY: The initial namespace is never freed.
        unsafe { Self::from_raw(net) }
    }

    /// Returns a number that identifies the namespace, as input of a hash function.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.key as u64
    }

    /// Returns `true` for the initial network namespace.
    pub(crate) fn is_init(&self) -> bool {
        self.init
    }
}

/// A namespace, and the gate of those who use it.
///
/// # Invariants
///
/// From the creation of this object until [`Gate::close`] has returned, `raw` points to a live
/// namespace whose addresses, sockets and settings have not ended.
#[pin_data]
struct OpenNet {
    raw: NonNull<bindings::net>,
    id: Net,
    #[pin]
    gate: Gate,
}

// SAFETY: The functions of a namespace may be called on any thread.
unsafe impl Send for OpenNet {}
// SAFETY: They may be called from several threads at once.
unsafe impl Sync for OpenNet {}

/// A network namespace. It may have ended: the reference does not keep it from that.
#[derive(Clone)]
pub(crate) struct NetRef(Arc<OpenNet>);

/// A use of a network namespace, for which its end waits.
///
/// # Invariants
///
/// The use has entered the gate, and leaves it when it is dropped.
pub(crate) struct NetUse(Arc<OpenNet>);

impl NetRef {
    /// # Safety
    ///
    /// `raw` must point to a live namespace. Before it begins to end, the caller closes the gate.
    unsafe fn new(raw: *mut bindings::net) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: By the caller's guarantee the namespace is alive.
        let id = unsafe { Net::from_raw(raw.as_ptr()) };
        // INVARIANT: The caller has promised that.
        let open = Arc::pin_init(
            pin_init!(OpenNet {
                raw,
                id,
                gate <- Gate::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(open))
    }

    /// Returns the initial namespace, which does not end.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn init() -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = unsafe { bindings::rds_rust_init_net() };
        // SAFETY: The initial namespace never ends.
        unsafe { Self::new(raw) }
    }

    /// Returns the identity of the namespace.
    pub(crate) fn id(&self) -> Net {
        self.0.id
    }

    /// Begins a use of the namespace. Returns `None` if it has ended.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn enter(&self) -> Option<NetUse> {
        // INVARIANT: Entered just now.
        self.0.gate.enter().then(|| NetUse(self.0.clone()))
    }

    /// Begins a use of the namespace.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if it has ended.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn try_use(&self) -> Result<NetUse> {
        self.enter().ok_or(ENODEV)
    }
}

impl NetUse {
    /// Returns the namespace, which is alive as long as `self`.
    pub(in crate::kapi) fn as_raw(&self) -> *mut bindings::net {
        self.0.raw.as_ptr()
    }
}

impl Clone for NetUse {
    fn clone(&self) -> Self {
        let open = self.0.clone();
        // INVARIANT: A closed gate is not empty while `self` is in it, so its end waits in any
        // case.
        open.gate.join();
        Self(open)
    }
}

impl Drop for NetUse {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}
