// SPDX-License-Identifier: GPL-2.0

//! Network namespaces, as far as they tell sockets apart.

use crate::bindings;

/// The identity of a network namespace.
///
/// It is a number to compare, not a reference: it stays meaningful, and harmless, after the
/// namespace has gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Net {
    key: usize,
    init: bool,
}

impl Net {
    /// The identity of a namespace.
    ///
    /// # Safety
    ///
    /// `net` must point to a live namespace.
    pub(super) unsafe fn from_raw(net: *mut bindings::net) -> Self {
        Self {
            key: net as usize,
            // SAFETY: The caller says that the namespace is alive.
            init: unsafe { bindings::rds_net_is_init(net) },
        }
    }

    /// The namespace that the machine booted with. RDMA devices live there.
    pub(crate) fn init() -> Self {
        // SAFETY: The function has no preconditions.
        let net = unsafe { bindings::rds_init_net() };
        // SAFETY: This namespace is alive for ever.
        unsafe { Self::from_raw(net) }
    }

    /// A number that tells it from others, to be hashed.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.key as u64
    }

    /// Whether this is the namespace that the machine booted with.
    pub(crate) fn is_init(&self) -> bool {
        self.init
    }
}
