// SPDX-License-Identifier: GPL-2.0

//! Queue pairs for local work requests: registration and invalidation of MRs.
//!
//! A device accepts such work requests only on a connected queue pair. A separate queue pair,
//! connected to the device itself, permits registration before there is a connection to a peer. MRs
//! can also outlive such a connection.
//!
//! One call at a time uses the queue pair, and waits for the device. If the device fails or times
//! out, the queue pair is closed, and the caller has to create another one.

use super::{
    cm::{
        Anchor,
        CmHandler,
        CmId, //
    },
    drain::Drain,
    mapping::{
        Access,
        Mapping, //
    },
    mr::{
        Mr,
        Region, //
    },
    pd::Pd,
    verbs::Verbs, //
};
use crate::{
    bindings,
    kapi::errno::Errno, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Maximum number of outstanding work requests, without the one that drains the queue.
const DEPTH: u32 = 64;
/// Timeout for the device. Completion normally takes microseconds.
const TIMEOUT_MS: u32 = 5_000;

/// The verbs objects of a [`LocalQp`].
///
/// # Invariants
///
/// - At most [`DEPTH`] work requests are outstanding. A call either waits for all of its requests,
///   or drops `self` with up to [`DEPTH`] of them outstanding.
/// - The marks of outstanding requests are dropped after `self`.
pub(super) struct LocalVerbs(Verbs);

impl LocalVerbs {
    /// Creates the only queue pair of `cm`. The caller ensures that the state of `cm` does not
    /// change meanwhile.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the protection domain is closed.
    /// - Errors of the device.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(super) fn new(cm: Arc<dyn Anchor>, pd: &Arc<Pd>) -> Result<Self> {
        let mut this = Self(Verbs::new(cm, pd)?);
        let cap = bindings::ib_qp_cap {
            // One more entry in each queue, to drain it.
            max_send_wr: DEPTH.saturating_add(1),
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        };
        // CAST: the number is small.
        let entries = DEPTH.saturating_add(2) as c_int;
        // SAFETY: `pd` keeps the device registered.
        let cq = unsafe { bindings::rds_rust_ib_alloc_cq(pd.device().as_raw(), entries) };
        let cq = from_err_ptr(cq)?;
        let attr = bindings::ib_qp_init_attr {
            cap,
            ..Default::default()
        };
        // SAFETY: The completion queue is new and has no other owner.
        unsafe { this.0.create_qp(cq, attr) }?;
        Ok(this)
    }
}

impl Drop for LocalVerbs {
    fn drop(&mut self) {
        pin_init::stack_pin_init!(let drain = Drain::new());
        let Self(verbs) = self;
        if !verbs.qp().is_null() {
            // SAFETY: By the type invariants the queue pair is alive. `&mut self` excludes other
            // posts. There is room for one more request than may be outstanding. `drain` is dropped
            // after the completion queue is destroyed.
            let flushed = unsafe { drain.as_ref().wait(verbs.qp()) };
            if let Err(error) = flushed {
                pr_warn!(
                    "queue pair for registrations not flushed (error {}): destroying it anyway\n",
                    error.to_errno()
                );
            }
        }
        verbs.destroy_qp();
        // SAFETY: `verbs` owned the queue, which `new` has created. Its queue pair is destroyed.
        // The call waits for polling, which is a work item: see `rds_rust_ib_alloc_cq()`.
        verbs.destroy_cq(|cq| unsafe { bindings::rds_rust_ib_free_cq(cq) });
    }
}

/// A queue pair for local work requests. Dropping it sleeps.
#[pin_data]
pub(crate) struct LocalQp {
    #[pin]
    verbs: Mutex<Option<LocalVerbs>>,
}

impl LocalQp {
    /// Creates the queue pair of `cm`, as [`Qp::create`](super::Qp::create) does.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the protection domain is closed.
    /// - `ENOMEM` if there is no memory.
    /// - Errors of the device.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn create<E: CmHandler>(cm: &CmId<E>, pd: &Arc<Pd>) -> Result<Arc<Self>> {
        // The lock prevents the CM from binding the id meanwhile.
        let locked = cm.lock();
        let verbs = LocalVerbs::new(cm.anchor(), pd)?;
        drop(locked);
        Self::of(verbs)
    }

    /// Wraps the verbs objects.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn of(verbs: LocalVerbs) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                verbs <- new_mutex!(Some(verbs), "rdma_local_qp"),
            }),
            GFP_KERNEL,
        )
    }

    /// Destroys the queue pair. Does nothing if it is closed already.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn close(&self) {
        let verbs = self.verbs.lock().take();
        drop(verbs);
    }

    /// Returns `true` if the queue pair is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.verbs.lock().is_none()
    }

    /// Registers `mapping` with `mr` for `access`. After an error the memory and the MR are
    /// released.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed.
    /// - `EINVAL` if the MR has too few pages.
    /// - `EIO`, `ETIMEDOUT` or another error of the device if it fails. The queue pair is closed
    ///   then.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn register(
        &self,
        mut mr: Mr,
        mapping: Arc<Mapping>,
        access: Access,
    ) -> Result<Region> {
        // The MR holds the mapping from here on, so the memory is not released before the MR.
        mr.set_pages(&mapping)?;
        let region = Region::new(mr, mapping);
        let mut guard = self.verbs.lock();
        let LocalVerbs(verbs) = (*guard).as_ref().ok_or(Errno::NotConnected)?;
        let cqe = region.mr().mark().cqe();
        // SAFETY: The queue pair is alive. The region lives until its completion arrives, or until
        // the completion queue is destroyed: see below.
        let post = |flags| unsafe {
            bindings::rds_rust_ib_post_reg_mr(verbs.qp(), region.mr().as_raw(), flags, cqe)
        };
        // Some devices support atomic operations, but refuse MRs that permit them, and log each
        // refusal.
        let domain = verbs.pd().domain();
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
        // `EINVAL` would blame the program, whose arguments are valid.
        let posted = posted.map_err(|error| if error == EINVAL { EIO } else { error });
        if let Err(error) = posted.and_then(|()| region.mr().finish(TIMEOUT_MS)) {
            // The region, with its mark, may be dropped only after the queues. A queue pair that
            // refuses requests is useless anyway.
            drop(guard.take());
            return Err(error);
        }
        drop(guard);
        Ok(region)
    }

    /// Invalidates the keys of the regions. [`Region::release`] depends on whether that succeeded
    /// for its region.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed.
    /// - `EIO`, `ETIMEDOUT` or another error of the device if it fails. The queue pair is closed
    ///   then.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn invalidate(&self, regions: &[Region]) -> Result {
        regions
            .chunks(DEPTH as usize)
            .try_for_each(|some| self.invalidate_some(some))
    }

    fn invalidate_some(&self, regions: &[Region]) -> Result {
        let mut guard = self.verbs.lock();
        let LocalVerbs(verbs) = (*guard).as_ref().ok_or(Errno::NotConnected)?;
        let mut result = Ok(());
        let mut posted = 0usize;
        for region in regions {
            let cqe = region.mr().mark().cqe();
            // SAFETY: As in `register`; there is room for [`DEPTH`] requests.
            result = to_result(unsafe {
                bindings::rds_rust_ib_post_local_inv(verbs.qp(), region.rkey(), cqe)
            });
            if result.is_err() {
                break;
            }
            posted = posted.saturating_add(1);
        }
        for region in regions.iter().take(posted) {
            match region.mr().finish(TIMEOUT_MS) {
                Ok(()) => region.set_invalid(),
                Err(error) => {
                    // The remaining regions may be dropped only after the queues.
                    drop(guard.take());
                    return Err(error);
                }
            }
        }
        if result.is_err() {
            // The queue pair may refuse requests permanently.
            drop(guard.take());
        }
        result
    }
}
