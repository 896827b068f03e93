// SPDX-License-Identifier: GPL-2.0

//! Periodic check of all queue pairs of a device for missing completions.
//! `proto::completion_watchdog` decides how long a completion may take.

use super::{
    endpoint_list::EndpointList,
    mr::MrPool,
    IbTunables, //
};
use crate::kapi::{
    sync::{
        cancel_delayed,
        OwnedQueue, //
    },
    task::without_io, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};

/// Work item that checks the queue pairs. It runs while the device has endpoints.
#[pin_data]
pub(super) struct CqWatchdog {
    endpoints: Arc<EndpointList>,
    regions: Arc<MrPool>,
    tunables: Arc<IbTunables>,
    queue: Arc<OwnedQueue>,
    #[pin]
    check: DelayedWork<CqWatchdog>,
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self> for CqWatchdog { self.check }
}

impl WorkItem for CqWatchdog {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.check();
        });
    }
}

impl CqWatchdog {
    /// Creates the watchdog, which does nothing before [`Self::begin`].
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(
        endpoints: &Arc<EndpointList>,
        regions: &Arc<MrPool>,
        tunables: &Arc<IbTunables>,
        queue: &Arc<OwnedQueue>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                endpoints: endpoints.clone(),
                regions: regions.clone(),
                tunables: tunables.clone(),
                queue: queue.clone(),
                check <- kernel::new_delayed_work!("CqWatchdog::check"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts the periodic check because there is a queue pair.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn begin(self: &Arc<Self>) {
        let period_ms = self.tunables.timeout().period_ms();
        self.queue.arm_unless_set::<_, 0>(self.clone(), period_ms);
    }

    /// Stops the check for good. There are no queue pairs, and there will be none.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn end(self: &Arc<Self>) {
        cancel_delayed::<_, 0>(self);
    }

    fn check(self: &Arc<Self>) {
        let timeout = self.tunables.timeout();
        self.endpoints
            .for_each(|_, user| user.qp.clone(), |qp| qp.check_progress(timeout));
        self.regions.note_progress();
        if !self.endpoints.is_empty() {
            self.begin();
        }
    }
}
