// SPDX-License-Identifier: GPL-2.0

//! CM ids that wait until their network device is up.
//!
//! To destroy one sends a message, and a message that finds no way out leaves soft-RoCE without its management queue pair
//! for good. They wait until their device goes at the longest, and there are not many: where nothing goes out, nothing
//! comes in a moment later.

use super::endpoint::EndpointShared;
use crate::kapi::{
    rdma::{CmId, DeviceId, IncomingRequest},
    sync::{new_spinlock_bh, Fifo, Item, SpinLockBh},
};
use kernel::{prelude::*, sync::Arc};

/// How many CM ids may wait. The others are destroyed at once, whatever comes of that.
const MOST: usize = 1024;

enum Answer {
    /// Of a connection that was lost with its network device. The queue pair is closed.
    Connection(CmId<EndpointShared>),
    /// Of a request that came while nothing could be sent.
    Request(KBox<IncomingRequest>),
}

/// A CM id that would answer its peer, were it destroyed.
pub(super) struct DeferredCmId {
    device: DeviceId,
    answer: Answer,
}

impl DeferredCmId {
    /// Without memory the CM id is destroyed. May sleep.
    pub(super) fn connection(device: DeviceId, id: CmId<EndpointShared>) -> Result<Item<Self>> {
        let answer = Answer::Connection(id);
        Ok(Item::new(Self { device, answer }, GFP_KERNEL)?)
    }

    /// Without memory the request is rejected. May sleep.
    pub(super) fn request(device: DeviceId, request: IncomingRequest) -> Result<Item<Self>> {
        let answer = Answer::Request(KBox::new(request, GFP_KERNEL)?);
        Ok(Item::new(Self { device, answer }, GFP_KERNEL)?)
    }

    /// Whether the peer can be told, or need not be. Any context.
    fn may_go(&self) -> bool {
        match &self.answer {
            Answer::Connection(id) => id.path_is_up(),
            Answer::Request(request) => request.is_withdrawn() || request.path_is_up(),
        }
    }
}

/// What is parked, of all devices.
#[pin_data]
pub(super) struct DeferredDestroy {
    #[pin]
    parked: SpinLockBh<Fifo<DeferredCmId>>,
}

impl DeferredDestroy {
    /// May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                parked <- new_spinlock_bh!(Fifo::new(), "DeferredDestroy::parked"),
            }),
            GFP_KERNEL,
        )
    }

    /// Keeps a CM id of a device that is not removed meanwhile, and that will be tended. Any context. Gives it back if
    /// there are too many.
    pub(super) fn park(&self, id: Item<DeferredCmId>) -> Option<Item<DeferredCmId>> {
        let mut parked = self.parked.lock();
        if parked.len() >= MOST {
            return Some(id);
        }
        parked.push_back(id);
        None
    }

    /// Destroys what is of a device and can tell its peer now, or need not, and says whether there is more of it.
    /// Sleeps.
    pub(super) fn sweep(&self, device: DeviceId) -> bool {
        let mut ready = Fifo::new();
        let mut more = false;
        self.parked.lock().extract(
            |parked| {
                let its = parked.device == device;
                let goes = its && parked.may_go();
                more |= its && !goes;
                goes
            },
            &mut ready,
        );
        // They go here, without the lock.
        more
    }

    /// Destroys all that is of a device. Sleeps.
    pub(super) fn clear(&self, device: DeviceId) {
        let mut gone = Fifo::new();
        self.parked
            .lock()
            .extract(|parked| parked.device == device, &mut gone);
        // They go here, without the lock.
    }
}
