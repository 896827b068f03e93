// SPDX-License-Identifier: GPL-2.0

//! The C objects of a queue pair with the objects that they need, and its sizes.
//!
//! [`Qp`](super::Qp) and [`LocalQp`](super::LocalQp) have different completion queues, which they
//! create and destroy themselves.

use super::{
    cm::Anchor,
    domain::{
        Domain,
        DomainUse, //
    },
    pd::Pd, //
};
use crate::bindings;
use core::ptr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Sizes and options of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpConfig {
    /// Maximum number of outstanding sends. The device gets room for one more, to drain the queue.
    pub(crate) max_send_wr: u32,
    /// Maximum number of outstanding receives. The device gets room for one more as well.
    pub(crate) max_recv_wr: u32,
    /// One of this many sends, at most `MAX_UNSIGNALED`, reports its completion.
    pub(crate) report_every: u32,
    /// Only reads may be posted behind a read. Otherwise completions would not arrive in order.
    pub(crate) wait_for_reads: bool,
}

/// The C objects of a queue pair.
///
/// # Invariants
///
/// - `cq` is null or a completion queue that `self` owns.
/// - `qp` is null or the queue pair of the identifier `cm`, which uses `cq`.
pub(super) struct Verbs {
    cq: *mut bindings::ib_cq,
    qp: *mut bindings::ib_qp,
    /// Completion vector of `cq`, which selects the interrupt.
    pub(super) vector: u32,
    cm: Arc<dyn Anchor>,
    _in_domain: DomainUse,
    pd: Arc<Pd>,
}

// SAFETY: The pointers point to objects that any thread may use.
unsafe impl Send for Verbs {}

impl Verbs {
    /// Prepares to create the only queue pair of `cm`.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the protection domain is closed.
    pub(super) fn new(cm: Arc<dyn Anchor>, pd: &Arc<Pd>) -> Result<Self> {
        Ok(Self {
            cq: ptr::null_mut(),
            qp: ptr::null_mut(),
            vector: 0,
            cm,
            _in_domain: Domain::enter(pd.domain())?,
            pd: pd.clone(),
        })
    }

    pub(super) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Returns the queue pair, or null.
    pub(super) fn qp(&self) -> *mut bindings::ib_qp {
        self.qp
    }

    /// Creates a queue pair that uses `cq` for sends and receives. `attr` has its other attributes.
    ///
    /// # Errors
    ///
    /// Errors of the device. `cq` belongs to `self` in this case as well.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The caller ensures that the state of the identifier does not
    /// change meanwhile.
    ///
    /// # Safety
    ///
    /// `cq` must be a completion queue of the device of the protection domain, without an owner.
    pub(super) unsafe fn create_qp(
        &mut self,
        cq: *mut bindings::ib_cq,
        attr: bindings::ib_qp_init_attr,
    ) -> Result {
        // INVARIANT: By the caller's guarantee the completion queue has no other owner.
        self.cq = cq;
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..attr
        };
        // INVARIANT: The identifier owns the queue pair, and `self` is its only user.
        self.qp = self.cm.create_qp(self.pd.as_raw(), &mut attr)?;
        Ok(())
    }

    /// Destroys the queue pair, if there is one. Sleeps.
    pub(super) fn destroy_qp(&mut self) {
        if !self.qp.is_null() {
            self.cm.destroy_qp();
            self.qp = ptr::null_mut();
        }
    }

    /// Passes the completion queue to `destroy`, if there is one.
    pub(super) fn destroy_cq(&mut self, destroy: impl FnOnce(*mut bindings::ib_cq)) {
        let cq = core::mem::replace(&mut self.cq, ptr::null_mut());
        if !cq.is_null() {
            destroy(cq);
        }
    }
}
