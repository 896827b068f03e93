// SPDX-License-Identifier: GPL-2.0

//! Queue pairs for local work requests: registration and invalidation of MRs.
//!
//! A device accepts such work requests only on a connected queue pair. A separate queue pair,
//! connected to the device itself, permits registration before there is a connection to a peer. MRs
//! can also outlive such a connection.
//!
//! Any number of callers use the queue pair at once. A caller posts under the lock, and waits
//! without it for the completions of its own work requests. If one fails or times out, the queue
//! pair is closed, which flushes those of other callers. They have to use another queue pair.

use super::{
    access::Access,
    cm::{
        Anchor,
        CmHandler,
        CmId, //
    },
    drain::Drain,
    mapping::Mapping,
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
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        CondVar,
        Mutex,
        MutexGuard, //
    }, //
};

/// Maximum number of outstanding work requests, without the one that drains the queue.
pub(super) const DEPTH: u32 = 64;
/// Timeout for the device. Completion normally takes microseconds.
const TIMEOUT_MS: u32 = 5_000;

/// The verbs objects of a [`LocalQp`].
///
/// # Invariants
///
/// - At most [`DEPTH`] work requests are outstanding.
/// - The marks of outstanding requests are dropped after `self`. A caller whose request has no
///   completion closes the [`LocalQp`] before it drops the mark.
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

/// State of a [`LocalQp`].
struct LocalQpState {
    /// `None` if the queue pair is closed.
    verbs: Option<LocalVerbs>,
    /// Number of work requests whose callers have not seen their completion.
    outstanding: usize,
    /// Number of callers that wait for room.
    waiting: usize,
}

impl LocalQpState {
    /// Returns the number of work requests that may be posted. There is no limit if the queue pair
    /// is closed, as nothing is posted then.
    fn room(&self) -> usize {
        match self.verbs {
            // CAST: `usize` holds a `u32`.
            Some(_) => (DEPTH as usize).saturating_sub(self.outstanding),
            None => usize::MAX,
        }
    }
}

/// A queue pair for local work requests. Dropping it sleeps.
#[pin_data]
pub(crate) struct LocalQp {
    #[pin]
    state: Mutex<LocalQpState>,
    /// Notified when the queue pair has room or is closed.
    #[pin]
    room: CondVar,
    /// The queue pair is closed, or another caller is closing it.
    closed: Atomic<bool>,
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
        let state = LocalQpState {
            verbs: Some(verbs),
            outstanding: 0,
            waiting: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(state, "rdma_local_qp"),
                room <- new_condvar!("LocalQp::room"),
                closed: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Destroys the queue pair, which flushes outstanding work requests. Returns after the queue
    /// pair is destroyed, even if another caller does that.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn close(&self) {
        self.close_locked(self.state.lock());
    }

    /// Closes the queue pair as [`Self::close`] does.
    fn close_locked(&self, mut state: MutexGuard<'_, LocalQpState>) {
        self.closed.store(true, ordering::Relaxed);
        // With the lock held: a caller whose work request timed out takes the lock before it drops
        // the mark, so it waits for the end of the completion queue.
        drop(state.verbs.take());
        drop(state);
        self.room.notify_all();
    }

    /// Returns `true` if the queue pair is closed or is being closed.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(ordering::Relaxed)
    }

    /// Returns the number of callers that wait for room.
    ///
    /// # Context
    ///
    /// Sleeps.
    #[cfg(rds_kunit)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Locks the queue pair once it has room for a work request or is closed. The device makes
    /// room, or the callers of outstanding work requests time out.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn lock_with_room(&self) -> MutexGuard<'_, LocalQpState> {
        let mut state = self.state.lock();
        while state.room() == 0 {
            state.waiting = state.waiting.saturating_add(1);
            self.room.wait(&mut state);
            state.waiting = state.waiting.saturating_sub(1);
        }
        state
    }

    /// Returns the room of `count` work requests that are complete.
    fn return_room(&self, count: usize) {
        let mut state = self.state.lock();
        state.outstanding = state.outstanding.saturating_sub(count);
        // Callers may be many. One that takes no place, because another was faster, is woken when
        // that one returns it.
        let wakes = count.min(state.waiting);
        drop(state);
        for _ in 0..wakes {
            self.room.notify_one();
        }
    }

    /// Registers `mapping` with `mr` for `access`. After an error the memory and the MR are
    /// released.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed, or fails for another reason than this work
    ///   request. It is closed then.
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
        // Dropped after the lock.
        let region = Region::new(mr, mapping);
        let mut state = self.lock_with_room();
        let LocalVerbs(verbs) = state.verbs.as_ref().ok_or(Errno::NotConnected)?;
        let cqe = region.mr().mark().cqe();
        // SAFETY: The queue pair is alive, and has room. The region lives until its completion
        // arrives, or until the completion queue is destroyed: see below.
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
        if let Err(error) = posted {
            // A queue pair that refuses requests is useless.
            self.close_locked(state);
            // `EINVAL` would blame the program, whose arguments are valid.
            return Err(if error == EINVAL { EIO } else { error });
        }
        state.outstanding = state.outstanding.saturating_add(1);
        drop(state);
        if let Err(error) = region.mr().finish(TIMEOUT_MS) {
            // The region, with its mark, may be dropped only after the queues.
            self.close();
            return Err(error);
        }
        self.return_room(1);
        Ok(region)
    }

    /// Invalidates the keys of the regions. [`Region::release`] depends on whether that succeeded
    /// for its region.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed, or fails for another reason than these work
    ///   requests. It is closed then.
    /// - `EIO`, `ETIMEDOUT` or another error of the device if it fails. The queue pair is closed
    ///   then.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn invalidate(&self, mut regions: &[Region]) -> Result {
        while !regions.is_empty() {
            let count = self.invalidate_some(regions)?;
            regions = regions.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Invalidates the first regions, as many as there is room for, and returns their number. A
    /// caller that waits for room has none of its own work requests outstanding.
    fn invalidate_some(&self, regions: &[Region]) -> Result<usize> {
        let mut state = self.lock_with_room();
        let LocalVerbs(verbs) = state.verbs.as_ref().ok_or(Errno::NotConnected)?;
        let mut result = Ok(());
        let mut posted = 0usize;
        for region in regions.iter().take(state.room()) {
            let cqe = region.mr().mark().cqe();
            // SAFETY: As in `register`.
            result = to_result(unsafe {
                bindings::rds_rust_ib_post_local_inv(verbs.qp(), region.rkey(), cqe)
            });
            if result.is_err() {
                break;
            }
            posted = posted.saturating_add(1);
        }
        state.outstanding = state.outstanding.saturating_add(posted);
        drop(state);
        for region in regions.iter().take(posted) {
            if let Err(error) = region.mr().finish(TIMEOUT_MS) {
                // The remaining regions may be dropped only after the queues.
                self.close();
                return Err(error);
            }
            region.set_invalid();
        }
        if let Err(error) = result {
            // The queue pair may refuse requests permanently.
            self.close();
            return Err(error);
        }
        self.return_room(posted);
        Ok(posted)
    }
}
