// SPDX-License-Identifier: GPL-2.0

//! Waits until soft-iWARP has sent every READ response that was in progress when an MR was
//! invalidated.
//!
//! Soft-iWARP checks the key of an MR only when it begins a READ response. It takes the rest of the
//! data from the memory of the MR, even if the MR was invalidated meanwhile. A queue pair sends one
//! work request or response at a time. So a completed send proves that responses which began before
//! it was posted are with TCP. TCP holds references to the pages. If the queue pair is gone, no
//! response is in progress either.

use super::super::endpoint_list::{
    EndpointList,
    EndpointQp, //
};
use crate::{
    kapi::{
        sync::{
            Fifo,
            Item, //
        },
        time, //
    },
    proto::completion_watchdog::WatchdogTimeout, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A wait for the queue pairs of a device that may still send a READ response from the MRs.
struct ReadQuiesce {
    ends: KVec<QuiescedEnd>,
    /// Start of the wait, on the monotonic clock, in nanoseconds.
    since: u64,
}

struct QuiescedEnd {
    /// Number of the endpoint in the [`EndpointList`].
    user: u64,
    /// Number of sends that the queue pair had been given when the wait began.
    posted: u64,
    /// The connection was given up because of this wait.
    given_up: bool,
}

impl QuiescedEnd {
    /// Returns the queue pair, unless it is gone or has completed a later send.
    fn active_qp(&self, endpoints: &EndpointList) -> Option<Arc<dyn EndpointQp>> {
        let qp = endpoints.qp(self.user)?;
        (qp.send_progress().done <= self.posted).then_some(qp)
    }
}

impl ReadQuiesce {
    /// Starts a wait: posts a signaled send to each queue pair.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context.
    fn new(endpoints: &EndpointList) -> Result<Self> {
        let mut ends = KVec::new();
        let mut result = Ok(());
        endpoints.for_each(
            |number, user| Some((number, user.qp.clone()?)),
            |(user, qp)| {
                let posted = qp.send_progress().posted;
                let end = QuiescedEnd {
                    user,
                    posted,
                    given_up: false,
                };
                if let Err(error) = ends.push(end, GFP_KERNEL) {
                    result = Err(error.into());
                }
                // Also sent after `ENOMEM`: the completion makes the worker try again.
                qp.send_something();
            },
        );
        let since = time::monotonic_ns();
        result.map(|()| Self { ends, since })
    }

    /// Returns `true` if every queue pair has completed a later send, or is gone.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn is_over(&mut self, endpoints: &EndpointList) -> bool {
        self.ends.retain(|end| end.active_qp(endpoints).is_some());
        self.ends.is_empty()
    }

    /// Gives up the connections that delay the wait for longer than `timeout`. A peer may have
    /// posted no receives, or grant no credits, and no other timeout applies to that.
    ///
    /// # Context
    ///
    /// Process context.
    fn check(&mut self, endpoints: &EndpointList, timeout: WatchdogTimeout) {
        if !timeout.is_over(time::monotonic_ns().saturating_sub(self.since)) {
            return;
        }
        // Only once per connection, as its queue pair takes time to go.
        for end in self.ends.iter_mut().filter(|end| !end.given_up) {
            if let Some(qp) = end.active_qp(endpoints) {
                end.given_up = true;
                qp.give_up_sending("quiesce timeout");
            }
        }
    }
}

/// Memory of invalid or destroyed MRs that READ responses may still use. `T` owns the memory.
pub(crate) struct ReadQuiesceQueue<T> {
    behind: Fifo<T>,
    quiesce: Option<ReadQuiesce>,
    /// Entries that were added after `quiesce` began.
    next: Fifo<T>,
    /// Number of waits that were started, including the current one, and number of those that are
    /// over.
    made: u64,
    over: u64,
}

impl<T> ReadQuiesceQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            behind: Fifo::new(),
            quiesce: None,
            next: Fifo::new(),
            made: 0,
            over: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.next.is_empty()
    }

    /// Adds an entry. No READ response from its memory begins any more.
    pub(crate) fn add(&mut self, entry: Item<T>) {
        self.next.push_back(entry);
    }

    /// Takes the entries whose memory no READ response uses any more, and starts a wait for those
    /// that were added since.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn pass(&mut self, endpoints: &EndpointList) -> Fifo<T> {
        let mut passed = Fifo::new();
        loop {
            if let Some(quiesce) = &mut self.quiesce {
                if !quiesce.is_over(endpoints) {
                    break;
                }
                self.quiesce = None;
                self.over = self.made;
                passed.append(&mut self.behind);
            }
            if self.next.is_empty() {
                break;
            }
            // If there is no memory, these entries wait for the next call.
            let Ok(quiesce) = ReadQuiesce::new(endpoints) else {
                break;
            };
            self.quiesce = Some(quiesce);
            self.made = self.made.wrapping_add(1);
            self.behind.append(&mut self.next);
        }
        passed
    }

    /// Returns the value that [`Self::over`] reaches when no READ response uses the memory of the
    /// entries that are queued now.
    pub(crate) fn wanted(&self) -> u64 {
        self.made.wrapping_add(u64::from(!self.next.is_empty()))
    }

    /// Returns the number of waits that are over.
    pub(crate) fn over(&self) -> u64 {
        self.over
    }

    /// Gives up the connections that delay the current wait for longer than `timeout`.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn check(&mut self, endpoints: &EndpointList, timeout: WatchdogTimeout) {
        if let Some(quiesce) = &mut self.quiesce {
            quiesce.check(endpoints, timeout);
        }
    }
}
