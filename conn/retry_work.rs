// SPDX-License-Identifier: GPL-2.0

//! Wakes the sockets that have waited for an operation, see [`super::retry_timers`].

use super::Node;
use crate::{
    kapi::{
        net::{
            poll,
            Sock, //
        },
        task::without_io, //
    },
    socket::Socket, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

impl Node {
    /// Makes `poll(2)` report no room to write until `wait_ns` have passed, and wakes the socket
    /// then. If the socket already waits for an earlier time, for another peer, that time stays.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn wake_writers_after(self: &Arc<Self>, sk: &Sock<Socket>, wait_ns: u64) -> Result {
        self.retry_timers
            .add(sk, wait_ns, |delay_ms| self.retry_in(delay_ms))
    }

    fn retry_in(self: &Arc<Self>, delay_ms: u32) {
        self.queue.arm::<_, 2>(self.clone(), delay_ms);
    }
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Node { self.retry_work }
}

/// Wakes the sockets whose time has come.
impl WorkItem<2> for Node {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let arm = |delay_ms| this.retry_in(delay_ms);
            while let Some(sk) = this.retry_timers.take_due(arm) {
                sk.wake_writers(poll::OUT);
            }
        });
    }
}
