// SPDX-License-Identifier: GPL-2.0

//! Waiting until no answer to a read is under way that began before.
//!
//! Soft-iWARP looks at the key of a region when it begins to answer a peer's read, and then takes the rest from the
//! memory that the region has by then, though it was invalidated. It sends one thing at a time. So when something is
//! sent that was posted later, such an answer is out, or the queue pair is gone.

use super::users::Users;
use kernel::prelude::*;

/// The queue pairs of a device of which this is not known yet.
pub(super) struct Fence(KVec<End>);

struct End {
    /// The number of its endpoint.
    user: u64,
    /// How many sends it had been given.
    posted: u64,
}

impl Fence {
    /// Has each queue pair send something. Fails with ENOMEM. Process context.
    pub(super) fn new(users: &Users) -> Result<Self> {
        let mut ends = KVec::new();
        let mut result = Ok(());
        users.for_each(
            |number, user| Some((number, user.qp.clone()?)),
            |(user, qp)| {
                let posted = qp.send_progress().posted;
                match ends.push(End { user, posted }, GFP_KERNEL) {
                    Ok(()) => qp.handler().send_something(&qp),
                    Err(error) => result = Err(error.into()),
                }
            },
        );
        result.map(|()| Self(ends))
    }

    /// Whether all have. Any context but a hard interrupt.
    pub(super) fn is_over(&mut self, users: &Users) -> bool {
        self.0.retain(|end| {
            users
                .qp(end.user)
                .is_some_and(|qp| qp.send_progress().done <= end.posted)
        });
        self.0.is_empty()
    }
}
