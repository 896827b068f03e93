// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that carry no messages, but only what a device does to itself: registering memory.
//!
//! A device takes such work requests on a connected queue pair alone. One of the device's own lets memory
//! be registered before there is a connection to a peer, and outlive it.
//!
//! One call at a time uses the queue pair, and waits until the device is done. A device that fails, or that takes
//! too long, gets no second chance: the queue pair is closed, and another one has to be made.

use super::{
    cm::{Anchor, CmHandler, CmId},
    domain::{Domain, DomainUse},
    drain::Drain,
    mr::{Access, Mapping, Mr, Region},
    pd::Pd,
};
use crate::{bindings, kapi::errno::Errno};
use core::ptr;
use kernel::{
    error::{from_err_ptr, to_result},
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// Most work requests that may be outstanding, beside that which drains the queue.
const DEPTH: u32 = 64;
/// How long a device may take for what should take microseconds, in milliseconds.
const PATIENCE_MS: u32 = 5_000;

/// What exists in C.
///
/// # Invariants
///
/// `cq` is null or a completion queue that this owns; `qp` is null or the queue pair of the connection id
/// `cm`, which uses `cq`. Of what is posted to `qp` at most [`DEPTH`] are outstanding: a call waits for all that it posts,
/// or drops this, with up to so many that nobody has waited for. Their marks go after that.
pub(super) struct LocalVerbs {
    cq: *mut bindings::ib_cq,
    qp: *mut bindings::ib_qp,
    cm: Arc<dyn Anchor>,
    _in_domain: DomainUse,
    pd: Arc<Pd>,
}

// SAFETY: The pointers are to things that any thread may use.
unsafe impl Send for LocalVerbs {}

impl LocalVerbs {
    /// Makes the only queue pair of `cm`, to which nothing happens meanwhile. Process context; may
    /// sleep.
    pub(super) fn new(cm: Arc<dyn Anchor>, pd: &Arc<Pd>) -> Result<Self> {
        let mut verbs = Self {
            cq: ptr::null_mut(),
            qp: ptr::null_mut(),
            cm,
            _in_domain: Domain::enter(pd.domain())?,
            pd: pd.clone(),
        };
        let cap = bindings::ib_qp_cap {
            // One more of each to drain the queue.
            max_send_wr: DEPTH.saturating_add(1),
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        };
        // CAST: small.
        let entries = DEPTH.saturating_add(2) as c_int;
        // SAFETY: `pd` keeps the device registered.
        let cq = unsafe { bindings::rds_ib_alloc_cq(pd.device().as_raw(), entries) };
        // INVARIANT: New, and nobody else's.
        verbs.cq = from_err_ptr(cq)?;
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: verbs.cq,
            recv_cq: verbs.cq,
            cap,
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // INVARIANT: The connection id owns the queue pair, and `verbs` is its only user.
        verbs.qp = verbs.cm.create_qp(pd.as_raw(), &mut attr)?;
        Ok(verbs)
    }
}

impl Drop for LocalVerbs {
    fn drop(&mut self) {
        pin_init::stack_pin_init!(let drain = Drain::new());
        if !self.qp.is_null() {
            // SAFETY: By the type invariants the queue pair is alive, and `&mut self` says that nobody else
            // posts. There is room for one more than are outstanding. `drain` goes after the completion queue.
            let flushed = unsafe { drain.as_ref().wait(self.qp) };
            if let Err(error) = flushed {
                pr_warn!(
                    "a device did not flush its own queue pair (error {})\n",
                    error.to_errno()
                );
            }
            self.cm.destroy_qp();
        }
        if !self.cq.is_null() {
            // SAFETY: By the type invariants it is ours, and its queue pair is gone. This waits for its polling,
            // as that is a work item: see `rds_ib_alloc_cq()`.
            unsafe { bindings::rds_ib_free_cq(self.cq) };
        }
    }
}

/// A queue pair for local work. Dropping it sleeps.
#[pin_data]
pub(crate) struct LocalQp {
    #[pin]
    verbs: Mutex<Option<LocalVerbs>>,
}

impl LocalQp {
    /// Makes the queue pair of `cm`, as [`Qp::create`](super::Qp::create) does. Process context; may sleep.
    pub(crate) fn create<E: CmHandler>(cm: &CmId<E>, pd: &Arc<Pd>) -> Result<Arc<Self>> {
        // The manager must not bind the identifier meanwhile.
        let locked = cm.lock();
        let verbs = LocalVerbs::new(cm.anchor(), pd)?;
        drop(locked);
        Self::of(verbs)
    }

    /// May sleep.
    pub(super) fn of(verbs: LocalVerbs) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                verbs <- new_mutex!(Some(verbs), "rdma_local_qp"),
            }),
            GFP_KERNEL,
        )
    }

    /// Destroys the queue pair. Does nothing a second time. Process context; sleeps.
    pub(crate) fn close(&self) {
        let verbs = self.verbs.lock().take();
        drop(verbs);
    }

    /// Whether it can be used no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.verbs.lock().is_none()
    }

    /// Gives the memory to `mr`, for use as `access` says.
    ///
    /// Fails with ENOTCONN if the queue pair is closed or not connected, EMSGSIZE if the region has not so many
    /// pages, EIO or ETIMEDOUT if the device fails; the memory and the region are given up then. Sleeps.
    pub(crate) fn register(
        &self,
        mut mr: Mr,
        mapping: Arc<Mapping>,
        access: Access,
    ) -> Result<Region> {
        // From here on the memory does not go before the region.
        mr.set_pages(&mapping)?;
        let region = Region::new(mr, mapping);
        let mut guard = self.verbs.lock();
        let verbs = (*guard).as_mut().ok_or(Errno::NotConnected)?;
        let cqe = region.mr().mark().cqe();
        // SAFETY: The queue pair is alive, and so is the region until its completion, or until there is no completion
        // queue any more: see below.
        let post = |flags| unsafe {
            bindings::rds_ib_post_reg_mr(verbs.qp, region.mr().as_raw(), flags, cqe)
        };
        // Some devices have atomic operations, but refuse such regions, and log that each time.
        let domain = verbs.pd.domain();
        let known = domain.refuses_atomic_regions();
        let first = access.without_atomics().filter(|_| known).unwrap_or(access);
        let posted =
            to_result(post(first.flags())).or_else(|error| match first.without_atomics() {
                Some(without_atomics) if error == EINVAL || error == Errno::NotSupported.into() => {
                    to_result(post(without_atomics.flags()))?;
                    domain.note_no_atomic_regions();
                    Ok(())
                }
                _ => Err(error),
            });
        // The program has said nothing wrong.
        let posted = posted.map_err(|error| if error == EINVAL { EIO } else { error });
        if let Err(error) = posted.and_then(|()| region.mr().finish(PATIENCE_MS)) {
            // Only without the queues may the region, with its mark, go. One that refuses is of no use either.
            drop(guard.take());
            return Err(error);
        }
        drop(guard);
        Ok(region)
    }

    /// Ends what peers may do with the regions; [`Region::release`] tells whether that went well. Fails with
    /// ENOTCONN if the queue pair is closed, EIO or ETIMEDOUT if the device fails. Sleeps.
    pub(crate) fn invalidate(&self, regions: &[Region]) -> Result {
        regions
            .chunks(DEPTH as usize)
            .try_for_each(|some| self.invalidate_some(some))
    }

    fn invalidate_some(&self, regions: &[Region]) -> Result {
        let mut guard = self.verbs.lock();
        let verbs = (*guard).as_mut().ok_or(Errno::NotConnected)?;
        let mut result = Ok(());
        let mut posted = 0usize;
        for region in regions {
            let cqe = region.mr().mark().cqe();
            // SAFETY: As in `register`; there is room for so many.
            result =
                to_result(unsafe { bindings::rds_ib_post_local_inv(verbs.qp, region.rkey(), cqe) });
            if result.is_err() {
                break;
            }
            posted = posted.saturating_add(1);
        }
        for region in regions.iter().take(posted) {
            match region.mr().finish(PATIENCE_MS) {
                Ok(()) => region.set_invalid(),
                Err(error) => {
                    // Only without the queues may the others go.
                    drop(guard.take());
                    return Err(error);
                }
            }
        }
        if result.is_err() {
            // It may refuse for good.
            drop(guard.take());
        }
        result
    }
}
