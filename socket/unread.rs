// SPDX-License-Identifier: GPL-2.0

//! Snapshots of unread messages for the `RDS_INFO_*` tables.

use super::{
    recv_queue::UnreadInfo,
    Socket, //
};
use crate::kapi::{
    net::Sock,
    sync::Walk,
    task,
    walk_in_batches, //
};
use kernel::prelude::*;

/// Maximum number of messages that are visited each time their queue is locked.
const BATCH: usize = 32;

impl Sock<Socket> {
    /// Calls `each`, without a lock, for the unread messages, oldest first, until it fails.
    ///
    /// Messages that are added or removed meanwhile may be missed, and none is visited twice. A
    /// message that a reader peeks at is included for as long as that takes.
    ///
    /// # Errors
    ///
    /// - `EINTR` if the process is being killed.
    /// - Any error of `each`.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn try_for_each_unread(
        &self,
        mut each: impl FnMut(&UnreadInfo) -> Result,
    ) -> Result {
        let mut walk = Walk::new();
        let mut begun = false;
        walk_in_batches::<UnreadInfo, _, BATCH>(
            |batch| {
                task::check_killed()?;
                let mut recv = self.recv.lock();
                // The peeked message comes before all that the walk visits.
                if let Some(peeked) = recv.peeked.filter(|_| !begun) {
                    batch.push(peeked);
                }
                begun = true;
                // No message is removed from the middle of this queue, so none is visited twice.
                Ok(recv.messages.walk(&mut walk, batch.room(), |message| {
                    batch.push(UnreadInfo::of(message));
                    true
                }))
            },
            |message| each(&message),
        )
    }
}
