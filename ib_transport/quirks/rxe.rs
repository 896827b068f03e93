// SPDX-License-Identifier: GPL-2.0

//! CM ids whose destruction waits until their network device is up.
//!
//! Destroying a CM id may send a message to the peer. If that message cannot be routed, soft-RoCE
//! loses its management queue pair (QP1) permanently. A deferred id is destroyed when its RDMA
//! device is removed, at the latest. There are only few: a network device that cannot send soon
//! receives no more requests either.

use super::super::endpoint_shared::EndpointShared;
use crate::kapi::{
    rdma::{
        CmId,
        DeviceId,
        IncomingRequest, //
    },
    sync::{
        new_spinlock_bh,
        Fifo,
        Item,
        Pick,
        SpinLockBh,
        Walk, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Maximum number of deferred CM ids. Further ones are destroyed at once in spite of the risk.
const MOST: usize = 1024;
/// Number of deferred CM ids that are checked in one hold of the lock.
const CHECKED_AT_ONCE: usize = 16;

enum Answer {
    /// CM id of a connection that was lost with its network device. The queue pair is closed.
    Connection(CmId<EndpointShared>),
    /// Request that arrived while nothing could be sent.
    Request(KBox<IncomingRequest>),
}

/// A CM id whose destruction would send a message to its peer.
pub(crate) struct DeferredCmId {
    device: DeviceId,
    answer: Answer,
}

impl DeferredCmId {
    /// Wraps the CM id of a closed connection. If there is no memory, the id is destroyed.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn connection(device: DeviceId, id: CmId<EndpointShared>) -> Result<Item<Self>> {
        let answer = Answer::Connection(id);
        Ok(Item::new(Self { device, answer }, GFP_KERNEL)?)
    }

    /// Wraps a request. If there is no memory, the request is rejected.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn request(device: DeviceId, request: IncomingRequest) -> Result<Item<Self>> {
        let answer = Answer::Request(KBox::new(request, GFP_KERNEL)?);
        Ok(Item::new(Self { device, answer }, GFP_KERNEL)?)
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

    /// Defers the destruction of a CM id. Returns the id if there are too many. The caller ensures
    /// that the device is not removed meanwhile, and arms its worker, which calls [`Self::sweep`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn park(&self, id: Item<DeferredCmId>) -> Option<Item<DeferredCmId>> {
        let mut parked = self.parked.lock();
        if parked.len() >= MOST {
            return Some(id);
        }
        parked.push_back(id);
        None
    }

    /// Destroys the CM ids of a device whose message can be sent, or is not needed. Returns `true`
    /// if others of the device remain.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn sweep(&self, device: DeviceId) -> bool {
        let mut ready = Fifo::new();
        let mut remain = false;
        let mut walk = Walk::new();
        loop {
            // A check may search all network devices.
            let more = self.parked.lock().extract_some(
                &mut walk,
                CHECKED_AT_ONCE,
                |parked| {
                    if parked.device != device {
                        return Pick::Leave;
                    }
                    match parked.may_go() {
                        true => Pick::Take,
                        false => {
                            remain = true;
                            Pick::Leave
                        }
                    }
                },
                &mut ready,
            );
            if !more {
                // `ready` is dropped without the lock.
                return remain;
            }
        }
    }

    /// Destroys all deferred CM ids of a device.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn clear(&self, device: DeviceId) {
        let mut gone = Fifo::new();
        self.parked
            .lock()
            .extract(|parked| parked.device == device, &mut gone);
        // `gone` is dropped without the lock.
    }
}
