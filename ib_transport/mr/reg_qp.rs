// SPDX-License-Identifier: GPL-2.0

//! The queue pair on which a device registers memory, and its peer.
//!
//! Devices accept registrations only on a connected queue pair. So two queue pairs of the same
//! device are connected to each other through the CM. No data is sent between them.

use super::super::endpoint_list::{
    EndpointList,
    Hold, //
};
use crate::kapi::{
    net::NetRef,
    print::pr_info_ratelimited,
    rdma::{
        CmEvent,
        CmHandler,
        CmId,
        ConnParams,
        IncomingRequest,
        Listener,
        LocalQp,
        Pd,
        RequestHandler,
        STALE_CONNECTION, //
    },
    sync::{
        new_spinlock_bh,
        Completion,
        OwnedQueue,
        Sections,
        SpinLockBh, //
    },
    task::without_io,
    time, //
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

/// Timeout of each step. All steps are local to this node.
const TIMEOUT_MS: u32 = 5_000;
/// Maximum number of attempts, each with a new queue pair number.
const MOST_NUMBERS: usize = 8;

/// Last event of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegQpStep {
    AddrResolved,
    RouteResolved,
    Established,
    /// The CM still knows a queue pair of this number from an earlier connection, so another number
    /// is needed.
    Stale,
    Failed,
}

/// Event handler of one end.
#[pin_data]
struct RegQpEnd {
    #[pin]
    step: SpinLockBh<Option<RegQpStep>>,
    #[pin]
    completion: Completion,
}

impl RegQpEnd {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                step <- new_spinlock_bh!(None, "reg_qp::RegQpEnd"),
                completion <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for the step `wanted`.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if no event arrives in time.
    /// - `EAGAIN` if another queue pair number is needed.
    /// - `EIO` if another event arrives.
    fn wait_for(&self, wanted: RegQpStep) -> Result {
        self.completion.wait(TIMEOUT_MS)?;
        match self.step.lock().take() {
            Some(step) if step == wanted => Ok(()),
            Some(RegQpStep::Stale) => Err(EAGAIN),
            _ => Err(EIO),
        }
    }
}

impl CmHandler for RegQpEnd {
    fn event(&self, event: CmEvent<'_>) {
        let failure = event.failure();
        let step = match event {
            CmEvent::AddrResolved => RegQpStep::AddrResolved,
            CmEvent::RouteResolved => RegQpStep::RouteResolved,
            CmEvent::Established { .. } => RegQpStep::Established,
            // A connected queue pair needs no address. `TimewaitExit` is about one that is gone.
            CmEvent::AddrChange | CmEvent::TimewaitExit => return,
            CmEvent::Rejected { reason, .. } if reason == STALE_CONNECTION => RegQpStep::Stale,
            CmEvent::Rejected { .. }
            | CmEvent::Unreachable { .. }
            | CmEvent::Disconnected
            | CmEvent::DeviceRemoval
            | CmEvent::AddrUnknown
            | CmEvent::Error { .. } => RegQpStep::Failed,
        };
        if let Some((what, why)) = failure {
            pr_info_ratelimited!(
                "cannot connect the queue pairs that register memory: {} ({})\n",
                what,
                why
            );
        }
        let mut last = self.step.lock();
        if *last != Some(RegQpStep::Failed) {
            *last = Some(step);
        }
        drop(last);
        self.completion.signal();
    }
}

/// Handler of the connection request that this node sends to itself.
#[pin_data]
struct Expected {
    /// Random value that identifies the request by its private data.
    word: [u8; 8],
    #[pin]
    request: SpinLockBh<Option<IncomingRequest>>,
    /// The requesting end. Its signal wakes the caller that waits for the request, whether the
    /// request arrives or is rejected.
    active_end: Arc<RegQpEnd>,
}

impl Expected {
    fn new(active_end: Arc<RegQpEnd>) -> Result<Arc<Self>> {
        let [a, b] = [time::random_u32(), time::random_u32()];
        Arc::pin_init(
            pin_init!(Self {
                word: (u64::from(a) << 32 | u64::from(b)).to_ne_bytes(),
                request <- new_spinlock_bh!(None, "reg_qp::Expected"),
                active_end,
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for the request.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT` if no event arrives in time.
    /// - `EAGAIN` if another queue pair number is needed.
    /// - `EIO` if another event arrives.
    fn wait(&self) -> Result<IncomingRequest> {
        self.active_end.completion.wait(TIMEOUT_MS)?;
        if *self.active_end.step.lock() == Some(RegQpStep::Stale) {
            return Err(EAGAIN);
        }
        self.request.lock().take().ok_or(EIO)
    }
}

impl RequestHandler for Expected {
    const REFUSAL: &'static [u8] = &[];

    fn request(&self, request: IncomingRequest) {
        // Requests of other nodes are rejected.
        if !request.private_data().starts_with(&self.word) {
            return;
        }
        let before = self.request.lock().replace(request);
        drop(before);
        self.active_end.completion.signal();
    }
}

/// Returns the parameters of a connection that serves no reads and no atomics.
const fn params(private_data: &[u8]) -> ConnParams<'_> {
    ConnParams {
        private_data,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
    }
}

/// The two connected ends. Dropping it closes both, and sleeps.
pub(crate) struct RegQp {
    qp: Arc<LocalQp>,
    other: Arc<LocalQp>,
    ids: [CmId<RegQpEnd>; 2],
}

/// A [`RegQp`] that a worker is to create.
#[pin_data]
struct Making {
    pd: Arc<Pd>,
    local_addr: SocketAddr,
    sections: Arc<Sections>,
    #[pin]
    made: SpinLockBh<Option<Result<RegQp>>>,
    #[pin]
    completion: Completion,
    #[pin]
    work: Work<Making>,
    /// Keeps the device, even for a worker that no caller waits for any more. Dropped after `made`.
    _hold: Hold,
}

kernel::impl_has_work! {
    impl HasWork<Self> for Making { self.work }
}

impl WorkItem for Making {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            // The error if all numbers are known: the caller of `make` cannot choose another one.
            let mut made = Err(EIO);
            for _ in 0..MOST_NUMBERS {
                match RegQp::new(&this.pd, &this.local_addr, &this.sections) {
                    Err(EAGAIN) => {}
                    result => {
                        made = result;
                        break;
                    }
                }
            }
            *this.made.lock() = Some(made);
            this.completion.signal();
        });
    }
}

impl RegQp {
    /// Creates the queue pairs as [`Self::new`] does, but in a worker. Soft-iWARP creates its
    /// sockets in the network namespace of the calling task.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device is being removed, or does not have the address `local_addr`.
    /// - `ETIMEDOUT` or `EIO` if the connection fails.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps, for seconds if the CM does, and callers have the state of registrations locked. An
    /// item of `queue` must not wait for that lock.
    pub(crate) fn make(
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        endpoints: &Arc<EndpointList>,
        local_addr: &SocketAddr,
    ) -> Result<Self> {
        let hold = endpoints.hold().ok_or(ENODEV)?;
        let making = Arc::pin_init(
            pin_init!(Making {
                pd: pd.clone(),
                local_addr: *local_addr,
                sections: endpoints.sections.clone(),
                made <- new_spinlock_bh!(None, "reg_qp::Making"),
                completion <- Completion::new(),
                work <- new_work!("reg_qp::Making"),
                _hold: hold,
            }),
            GFP_KERNEL,
        )?;
        queue.enqueue::<_, 0>(making.clone());
        // Each step has its own timeout; this limit is for all attempts.
        making.completion.wait(20 * TIMEOUT_MS)?;
        let made = making.made.lock().take();
        made.unwrap_or(Err(EIO))
    }

    /// Connects the device of `pd` to itself through its local address `local_addr`, whose port is
    /// 0.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the address does not belong to the device.
    /// - `EAGAIN` if another queue pair number is needed.
    /// - `ETIMEDOUT` or `EIO` if the connection fails.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn new(pd: &Arc<Pd>, local_addr: &SocketAddr, sections: &Arc<Sections>) -> Result<Self> {
        // If the address has moved, the CM ids belong to a device on which no hold is taken.
        // Removal of that device waits for the section instead.
        let section = sections.open()?;
        let (active, passive) = (RegQpEnd::new()?, RegQpEnd::new()?);
        let expected = Expected::new(active.clone())?;
        let net = NetRef::init()?;
        let listener = Listener::new(&net, local_addr, 1, expected.clone())?;
        let peer_addr = listener.local_addr().ok_or(EINVAL)?;

        let id = CmId::new(&net, active.clone())?;
        id.resolve_addr(Some(local_addr), &peer_addr, TIMEOUT_MS)?;
        active.wait_for(RegQpStep::AddrResolved)?;
        if !id
            .device()
            .is_some_and(|its| core::ptr::eq(&*its, pd.device()))
        {
            return Err(ENODEV);
        }
        drop(section);
        id.resolve_route(TIMEOUT_MS)?;
        active.wait_for(RegQpStep::RouteResolved)?;
        let qp = LocalQp::create(&id, pd)?;
        id.connect(&params(&expected.word), TIMEOUT_MS)?;

        let other_id = expected.wait()?.attach(passive.clone())?;
        let other = LocalQp::create(&other_id, pd)?;
        other_id.accept(&params(&[]))?;
        let this = Self {
            qp,
            other,
            ids: [id, other_id],
        };
        // The passive end is always notified of the result of its reply. The active end is not
        // notified of a reply that its CM rejects because of the queue pair number.
        passive.wait_for(RegQpStep::Established)?;
        active.wait_for(RegQpStep::Established)?;
        Ok(this)
    }

    /// Wraps queue pairs that are connected without a CM.
    ///
    /// # Context
    ///
    /// May sleep.
    #[cfg(rds_kunit)]
    pub(crate) fn of(qp: Arc<LocalQp>, other: Arc<LocalQp>) -> Result<Self> {
        let net = NetRef::init()?;
        let new_id = || CmId::new(&net, RegQpEnd::new()?);
        let ids = [new_id()?, new_id()?];
        Ok(Self { qp, other, ids })
    }

    /// Closes both ends. Work requests of other callers fail.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn close(&self) {
        for id in &self.ids {
            // An error is harmless: the other end is notified, or has disconnected already.
            let _ = id.disconnect();
        }
        self.qp.close();
        self.other.close();
    }

    /// Returns the queue pair on which memory is registered.
    pub(crate) fn qp(&self) -> &LocalQp {
        &self.qp
    }
}

impl Drop for RegQp {
    fn drop(&mut self) {
        self.close();
    }
}
