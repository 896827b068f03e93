// SPDX-License-Identifier: GPL-2.0

//! The queue pair by which a device registers memory: connected to another one of this node, on the same
//! device, for the sole reason that devices ask for a connection.

use super::endpoint_list::{EndpointList, Hold};
use crate::kapi::{
    print::pr_info_ratelimited,
    rdma::{
        CmEvent, CmHandler, CmId, ConnParams, IncomingRequest, Listener, LocalQp, Pd,
        RequestHandler, STALE_CONNECTION,
    },
    sync::{new_spinlock_bh, Completion, OwnedQueue, SpinLockBh},
    task::without_io,
    time,
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{new_work, Work, WorkItem},
};

/// How long each step may take, in milliseconds. All of them stay on this node.
const PATIENCE_MS: u32 = 5_000;
/// As many numbers of queue pairs are tried.
const MOST_NUMBERS: usize = 8;

/// What has happened to one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegQpStep {
    AddrResolved,
    RouteResolved,
    Established,
    /// The manager still knows a queue pair of this number from a connection that has ended:
    /// another number is needed.
    Stale,
    Failed,
}

/// Who hears of one end.
#[pin_data]
struct RegQpEnd {
    #[pin]
    step: SpinLockBh<Option<RegQpStep>>,
    #[pin]
    signal: Completion,
}

impl RegQpEnd {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                step <- new_spinlock_bh!(None, "reg_qp::RegQpEnd"),
                signal <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for a step. Fails with ETIMEDOUT, with EAGAIN if another number is needed, or with EIO
    /// if something else happens.
    fn wait_for(&self, wanted: RegQpStep) -> Result {
        self.signal.wait(PATIENCE_MS)?;
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
            // The queue pair needs no address once it is connected.
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
                "connecting a device with itself to register memory: {} ({})\n",
                what,
                why
            );
        }
        let mut last = self.step.lock();
        if *last != Some(RegQpStep::Failed) {
            *last = Some(step);
        }
        drop(last);
        self.signal.signal();
    }
}

/// Who waits for the request of our own.
#[pin_data]
struct Expected {
    /// By which it is known.
    word: [u8; 8],
    #[pin]
    request: SpinLockBh<Option<IncomingRequest>>,
    /// The end that asks: whoever waits for the request hears there, too, that it was refused.
    active_end: Arc<RegQpEnd>,
}

impl RequestHandler for Expected {
    const REFUSAL: &'static [u8] = &[];

    fn request(&self, request: IncomingRequest) {
        // Others are rejected.
        if !request.private_data().starts_with(&self.word) {
            return;
        }
        let before = self.request.lock().replace(request);
        drop(before);
        self.active_end.signal.signal();
    }
}

/// The two ends. Dropping it takes them down, and sleeps.
pub(super) struct RegQp {
    qp: Arc<LocalQp>,
    other: Arc<LocalQp>,
    ids: [CmId<RegQpEnd>; 2],
}

/// A registrar that a worker is to make.
#[pin_data]
struct Making {
    pd: Arc<Pd>,
    here: SocketAddr,
    #[pin]
    made: SpinLockBh<Option<Result<RegQp>>>,
    #[pin]
    signal: Completion,
    #[pin]
    work: Work<Making>,
    /// Of the device, also for a worker that nobody waits for any more. Dropped after what it has made.
    _hold: Hold,
}

kernel::impl_has_work! {
    impl HasWork<Self> for Making { self.work }
}

impl WorkItem for Making {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let mut made = RegQp::new(&this.pd, &this.here);
            for _ in 1..MOST_NUMBERS {
                if !matches!(&made, Err(error) if *error == EAGAIN) {
                    break;
                }
                made = RegQp::new(&this.pd, &this.here);
            }
            // Whoever asks cannot do anything about it.
            let made = made.map_err(|error| if error == EAGAIN { EIO } else { error });
            *this.made.lock() = Some(made);
            this.signal.signal();
        });
    }
}

impl RegQp {
    /// As [`Self::new`], but by a worker: soft-iWARP makes its sockets in the network namespace of who calls. Sleeps.
    /// Fails with ENODEV if the device goes.
    pub(super) fn make(
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        users: &Arc<EndpointList>,
        here: &SocketAddr,
    ) -> Result<Self> {
        let hold = users.hold().ok_or(ENODEV)?;
        let making = Arc::pin_init(
            pin_init!(Making {
                pd: pd.clone(),
                here: *here,
                made <- new_spinlock_bh!(None, "reg_qp::Making"),
                signal <- Completion::new(),
                work <- new_work!("reg_qp::Making"),
                _hold: hold,
            }),
            GFP_KERNEL,
        )?;
        queue.enqueue::<_, 0>(making.clone());
        // Each step has a limit of its own.
        making.signal.wait(20 * PATIENCE_MS)?;
        let made = making.made.lock().take();
        made.unwrap_or(Err(EIO))
    }

    /// Connects the device of `pd` with itself, by way of an address that it has, without a port.
    /// Fails with ENODEV if that is not so, with EAGAIN if another number is needed, and with
    /// ETIMEDOUT or EIO if connecting does not go well. Sleeps.
    fn new(pd: &Arc<Pd>, here: &SocketAddr) -> Result<Self> {
        let [a, b] = [time::random_u32(), time::random_u32()];
        let word = (u64::from(a) << 32 | u64::from(b)).to_ne_bytes();
        let (active, passive) = (RegQpEnd::new()?, RegQpEnd::new()?);
        let active_end = active.clone();
        let expected = Arc::pin_init(
            pin_init!(Expected {
                word,
                request <- new_spinlock_bh!(None, "reg_qp::Expected"),
                active_end,
            }),
            GFP_KERNEL,
        )?;
        let listener = Listener::new(here, 1, expected.clone())?;
        let there = listener.local_addr().ok_or(EINVAL)?;

        let id = CmId::new(active.clone())?;
        id.resolve_addr(Some(here), &there, PATIENCE_MS)?;
        active.wait_for(RegQpStep::AddrResolved)?;
        if !id
            .device()
            .is_some_and(|its| core::ptr::eq(&*its, pd.device()))
        {
            return Err(ENODEV);
        }
        id.resolve_route(PATIENCE_MS)?;
        active.wait_for(RegQpStep::RouteResolved)?;
        let qp = LocalQp::create(&id, pd)?;
        let params = ConnParams {
            private_data: &word,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
        };
        id.connect(&params, PATIENCE_MS)?;

        active.signal.wait(PATIENCE_MS)?;
        if *active.step.lock() == Some(RegQpStep::Stale) {
            return Err(EAGAIN);
        }
        let request = expected.request.lock().take().ok_or(EIO)?;
        let other_id = request.attach(passive.clone())?;
        let other = LocalQp::create(&other_id, pd)?;
        other_id.accept(&ConnParams {
            private_data: &[],
            ..params
        })?;
        let this = Self {
            qp,
            other,
            ids: [id, other_id],
        };
        // It hears whatever becomes of its answer. The other end hears nothing of an answer that it
        // rejects because of its number.
        passive.wait_for(RegQpStep::Established)?;
        active.wait_for(RegQpStep::Established)?;
        Ok(this)
    }

    /// One whose queue pairs are connected without a connection manager. May sleep.
    #[cfg(rds_kunit)]
    pub(super) fn of(qp: Arc<LocalQp>, other: Arc<LocalQp>) -> Result<Self> {
        let ids = [CmId::new(RegQpEnd::new()?)?, CmId::new(RegQpEnd::new()?)?];
        Ok(Self { qp, other, ids })
    }

    /// Where memory is registered.
    pub(super) fn qp(&self) -> &LocalQp {
        &self.qp
    }
}

impl Drop for RegQp {
    fn drop(&mut self) {
        for id in &self.ids {
            // The other one hears of it, or knows.
            let _ = id.disconnect();
        }
        self.qp.close();
        self.other.close();
    }
}
