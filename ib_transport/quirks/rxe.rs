// SPDX-License-Identifier: GPL-2.0

//! CM ids whose destruction waits until their network device is up.
//!
//! Destroying a CM id may send a message to the peer. If that message cannot be routed, soft-RoCE
//! loses its management queue pair (QP1) permanently. A deferred id is destroyed when its RDMA
//! device is removed, at the latest. There are only few: a network device that cannot send soon
//! receives no more requests either.

use super::super::endpoint_shared::EndpointShared;
use crate::kapi::{
    net::Net,
    rdma::{
        CmId,
        DeviceId,
        IncomingRequest, //
    },
    sync::{
        new_spinlock_bh,
        Counted,
        Fifo,
        Item,
        Pick,
        SharedCount,
        SpinLockBh,
        Walk, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Maximum number of deferred CM ids of the initial network namespace. Further ones are destroyed
/// at once in spite of the risk.
const MOST: usize = 1024;
/// The same for each other namespace.
const MOST_OF_OTHER: usize = 128;
/// Number of deferred CM ids that are checked in one hold of the lock.
const CHECKED_AT_ONCE: usize = 16;

enum Answer {
    /// CM id of a connection that was lost with its network device. The queue pair is closed.
    Connection(CmId<EndpointShared>),
    /// Request that arrived while nothing could be sent.
    Request(KBox<IncomingRequest>),
}

/// The number of deferred CM ids of a network namespace. No namespace uses up that of another.
pub(crate) struct DeferredBudget {
    net: Net,
    count: SharedCount,
    most: usize,
}

impl DeferredBudget {
    /// Creates the number for a namespace.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(net: Net) -> Result<Self> {
        Ok(Self {
            net,
            count: SharedCount::new()?,
            most: match net.is_init() {
                true => MOST,
                false => MOST_OF_OTHER,
            },
        })
    }

    /// Returns `true` if the namespace has deferred CM ids, which keep it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_used(&self) -> bool {
        self.count.get() > 0
    }

    fn take(&self) -> Result<Counted> {
        self.count.add(self.most).ok_or(ENOMEM)
    }
}

/// A CM id whose destruction would send a message to its peer. Fields are dropped in this order:
/// the CM id before its number.
pub(crate) struct DeferredCmId {
    device: DeviceId,
    net: Net,
    answer: Answer,
    _counted: Counted,
}

impl DeferredCmId {
    /// Wraps the CM id of a closed connection. If there is no memory, or too many wait, the id is
    /// destroyed.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn connection(
        device: DeviceId,
        budget: &DeferredBudget,
        id: CmId<EndpointShared>,
    ) -> Result<Item<Self>> {
        Self::new(device, budget, Answer::Connection(id))
    }

    /// Wraps a request. If there is no memory, or too many wait, the request is rejected.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn request(
        device: DeviceId,
        budget: &DeferredBudget,
        request: IncomingRequest,
    ) -> Result<Item<Self>> {
        let request = KBox::new(request, GFP_KERNEL)?;
        Self::new(device, budget, Answer::Request(request))
    }

    fn new(device: DeviceId, budget: &DeferredBudget, answer: Answer) -> Result<Item<Self>> {
        let this = Self {
            device,
            net: budget.net,
            answer,
            _counted: budget.take()?,
        };
        Ok(Item::new(this, GFP_KERNEL)?)
    }

    /// Returns `true` if the message to the peer can be sent, or is not needed.
    ///
    /// # Context
    ///
    /// Any context.
    fn may_go(&self) -> bool {
        match &self.answer {
            Answer::Connection(id) => id.path_is_up(),
            Answer::Request(request) => request.is_withdrawn() || request.path_is_up(),
        }
    }
}

/// The deferred CM ids of all devices.
#[pin_data]
pub(crate) struct DeferredDestroy {
    #[pin]
    parked: SpinLockBh<Fifo<DeferredCmId>>,
}

impl DeferredDestroy {
    /// Creates an empty list.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                parked <- new_spinlock_bh!(Fifo::new(), "DeferredDestroy::parked"),
            }),
            GFP_KERNEL,
        )
    }

    /// Defers the destruction of a CM id. The caller ensures that the device is not removed
    /// meanwhile, and arms its worker, which calls [`Self::sweep`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn park(&self, id: Item<DeferredCmId>) {
        self.parked.lock().push_back(id);
    }

    /// Destroys the CM ids of a device whose message can be sent, or is not needed. Returns `true`
    /// if others of the device remain.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn sweep(&self, device: DeviceId) -> bool {
        let mut remain = false;
        self.destroy(|parked| {
            let is_of = parked.device == device;
            let goes = is_of && parked.may_go();
            remain |= is_of && !goes;
            goes
        });
        remain
    }

    /// Destroys all deferred CM ids of a device.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn clear(&self, device: DeviceId) {
        self.destroy(|parked| parked.device == device);
    }

    /// Destroys all deferred CM ids of a network namespace other than the initial one. Only
    /// soft-RoCE devices of that namespace may lose their management queue pair.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn clear_net(&self, net: Net) {
        self.destroy(|parked| parked.net == net);
    }

    /// Destroys the CM ids that `pick` takes.
    fn destroy(&self, mut pick: impl FnMut(&DeferredCmId) -> bool) {
        let mut gone = Fifo::new();
        let mut walk = Walk::new();
        let mut pick = |parked: &mut DeferredCmId| match pick(parked) {
            true => Pick::Take,
            false => Pick::Leave,
        };
        // A check may search all network devices.
        while self
            .parked
            .lock()
            .extract_some(&mut walk, CHECKED_AT_ONCE, &mut pick, &mut gone)
        {}
        // `gone` is dropped without the lock.
    }
}
