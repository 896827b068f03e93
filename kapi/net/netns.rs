// SPDX-License-Identifier: GPL-2.0

//! Identity of network namespaces, as far as sockets need it.

use crate::bindings;

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
