// SPDX-License-Identifier: GPL-2.0

//! Waiting until no answer to a read is under way that began before.
//!
//! Soft-iWARP looks at the key of a region when it begins to answer a peer's read, and then takes the rest from the
//! memory that the region has by then, though it was invalidated. It sends one thing at a time. So when something is
//! sent that was posted later, such an answer is with TCP, which has references to pages of its own, or the queue pair is
//! gone.

use super::{endpoint_list::EndpointList, mr_entry::MrEntry, qp_context::QpContext};
use crate::kapi::{
    rdma::Qp,
    sync::{Fifo, Item},
    time,
};
use crate::proto::completion_watchdog::WatchdogTimeout;
use kernel::{prelude::*, sync::Arc};

/// The queue pairs of a device of which this is not known yet.
struct ReadQuiesce {
    ends: KVec<QuiescedEnd>,
    /// On the monotonic clock, in nanoseconds.
    since: u64,
}

struct QuiescedEnd {
    /// The number of its endpoint.
    user: u64,
    /// How many sends it had been given.
    posted: u64,
    /// Its connection was given up.
    given_up: bool,
}

impl QuiescedEnd {
    /// Its queue pair, if that has sent nothing that was posted later.
    fn holder(&self, users: &EndpointList) -> Option<Arc<Qp<QpContext>>> {
        let qp = users.qp(self.user)?;
        (qp.send_progress().done <= self.posted).then_some(qp)
    }
}

impl ReadQuiesce {
    /// Has each queue pair send something. Fails with ENOMEM. Process context.
    fn new(users: &EndpointList) -> Result<Self> {
        let mut ends = KVec::new();
        let mut result = Ok(());
        users.for_each(
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
                // Without memory, too: who hears of it tries again.
                qp.handler().send_something(&qp);
            },
        );
        let since = time::monotonic_ns();
        result.map(|()| Self { ends, since })
    }

    /// Whether all have. Any context but a hard interrupt.
    fn is_over(&mut self, users: &EndpointList) -> bool {
        self.ends.retain(|end| end.holder(users).is_some());
        self.ends.is_empty()
    }

    /// Gives up the connections that hold it up for longer than `timeout`: the peer may have no receives, or not tell of
    /// any, and nothing else waits for that. Process context.
    fn check(&mut self, users: &EndpointList, timeout: WatchdogTimeout) {
        if !timeout.is_over(time::monotonic_ns().saturating_sub(self.since)) {
            return;
        }
        // Once: a queue pair takes its time to go.
        for end in self.ends.iter_mut().filter(|end| !end.given_up) {
            if let Some(qp) = end.holder(users) {
                end.given_up = true;
                qp.handler().give_up_sending("reads");
            }
        }
    }
}

/// Regions that are invalid, or gone, from whose memory a read may still be answered.
pub(super) struct ReadQuiesceQueue {
    behind: Fifo<MrEntry>,
    quiesce: Option<ReadQuiesce>,
    /// Those that came after the fence.
    next: Fifo<MrEntry>,
    /// How many fences there were, with this one, and how many are over.
    made: u64,
    over: u64,
}

impl ReadQuiesceQueue {
    pub(super) fn new() -> Self {
        Self {
            behind: Fifo::new(),
            quiesce: None,
            next: Fifo::new(),
            made: 0,
            over: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.next.is_empty()
    }

    /// No read from it begins any more.
    pub(super) fn add(&mut self, entry: Item<MrEntry>) {
        self.next.push_back(entry);
    }

    /// Takes those from which no read is answered any more, and makes a fence for what has come since. Sleeps.
    pub(super) fn pass(&mut self, users: &EndpointList) -> Fifo<MrEntry> {
        let mut passed = Fifo::new();
        loop {
            if let Some(quiesce) = &mut self.quiesce {
                if !quiesce.is_over(users) {
                    break;
                }
                self.quiesce = None;
                self.over = self.made;
                passed.append(&mut self.behind);
            }
            if self.next.is_empty() {
                break;
            }
            // Without memory for it, those wait for the next time.
            let Ok(quiesce) = ReadQuiesce::new(users) else {
                break;
            };
            self.quiesce = Some(quiesce);
            self.made = self.made.wrapping_add(1);
            self.behind.append(&mut self.next);
        }
        passed
    }

    /// How many fences have to be over until no read is answered from those that there are now.
    pub(super) fn wanted(&self) -> u64 {
        self.made.wrapping_add(u64::from(!self.next.is_empty()))
    }

    /// How many are.
    pub(super) fn over(&self) -> u64 {
        self.over
    }

    /// Gives up the connections that hold up the fence for longer than `timeout`. Process context.
    pub(super) fn check(&mut self, users: &EndpointList, timeout: WatchdogTimeout) {
        if let Some(quiesce) = &mut self.quiesce {
            quiesce.check(users, timeout);
        }
    }
}
