// SPDX-License-Identifier: GPL-2.0

//! Sockets that wait until others release memory that they share.
//!
//! Memory may be released in any context, and any number of sockets may wait for it. So a work item
//! wakes them. Each one then tries again.

use super::{
    forward::Socket,
    Waiters, //
};
use crate::kapi::{
    net::Sock,
    sync::OwnedQueue,
    task::without_io, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// The sockets that wait for room, and the work that wakes them.
#[pin_data]
pub(crate) struct RoomWaiters {
    #[pin]
    waiters: Waiters,
    #[pin]
    waking: Work<Self>,
}

kernel::impl_has_work! {
    impl HasWork<Self> for RoomWaiters { self.waking }
}

impl WorkItem for RoomWaiters {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.waiters.wake_writers());
    }
}

impl RoomWaiters {
    /// Creates a list without sockets.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        let this = pin_init!(Self {
            waiters <- Waiters::new(),
            waking <- kernel::new_work!("RoomWaiters::waking"),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Schedules the wake-up of all sockets.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn wake(self: &Arc<Self>, queue: &OwnedQueue) {
        queue.enqueue::<_, 0>(self.clone());
    }

    /// Returns `true` if `sk` waits, so it was not woken since it was added.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn has(&self, sk: &Sock<Socket>) -> bool {
        self.waiters.has(sk, 0)
    }

    /// Returns the list of sockets.
    pub(super) fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}
