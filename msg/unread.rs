// SPDX-License-Identifier: GPL-2.0

//! What others are shown of the messages that wait to be read.

use super::{Incoming, Socket};
use crate::kapi::{net::Sock, sync::Walk, task};
use core::net::Ipv6Addr;
use kernel::prelude::*;

/// Messages that are looked at from one time to the next that their queue is locked.
const BATCH: usize = 32;

/// What is shown of a message that waits to be read.
#[derive(Clone, Copy)]
pub(crate) struct UnreadInfo {
    pub(crate) sequence: u64,
    pub(crate) len: u32,
    pub(crate) saddr: Ipv6Addr,
    pub(crate) sport: u16,
    pub(crate) tos: u8,
}

impl UnreadInfo {
    pub(super) fn of(message: &Incoming) -> Self {
        Self {
            sequence: message.sequence,
            len: message.len,
            saddr: message.saddr,
            sport: message.sport,
            tos: message.tos,
        }
    }
}

impl Sock<Socket> {
    /// Calls `each`, without a lock, for the messages that wait to be read, oldest first, until it fails.
    /// What comes or goes meanwhile may be missed, and no message is seen twice. One that a reader only
    /// looks at is there all the time, however long that takes. May sleep. Fails with EINTR if the process
    /// is to die.
    pub(crate) fn try_for_each_unread(
        &self,
        mut each: impl FnMut(&UnreadInfo) -> Result,
    ) -> Result {
        let mut walk = Walk::new();
        let mut begun = false;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut slots = batch.iter_mut();
            let mut recv = self.recv.lock();
            // In front of all that the walk will come by.
            let looked_at = recv.looked_at.filter(|_| !begun);
            begun = true;
            let more = recv.messages.walk(
                &mut walk,
                BATCH,
                // Nothing is taken out of the midst of this queue, so none comes twice.
                |message| {
                    if let Some(slot) = slots.next() {
                        *slot = Some(UnreadInfo::of(message));
                    }
                    true
                },
            );
            drop(recv);
            looked_at.iter().try_for_each(&mut each)?;
            batch.iter().flatten().try_for_each(&mut each)?;
            task::check_killed()?;
            if !more {
                return Ok(());
            }
        }
    }
}
