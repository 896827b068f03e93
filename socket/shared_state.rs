// SPDX-License-Identifier: GPL-2.0

//! State that the sockets of all network namespaces share: the table of bound sockets, the memory
//! of users, and a workqueue.

use super::{
    Accounts,
    BindTable,
    BounceRoom, //
};
use crate::{
    kapi::sync::OwnedQueue,
    proto::rcvbuf, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// State of the machine, which outlives each of its network namespaces.
///
/// Memory belongs to the machine, so its limits are here. The bind table has sockets of all
/// namespaces, as one table of the machine's size is cheaper than one for each namespace. Its keys
/// have the namespace.
pub(crate) struct SharedState {
    pub(crate) binds: BindTable,
    /// Bytes of unread messages that a socket may have in any case.
    pub(super) overrun_floor: u64,
    /// Charges of users for shared memory.
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) bounce_room: BounceRoom,
    /// Runs work items of sockets, and the periodic checks of all connections. Its work never waits
    /// for a peer.
    pub(super) queue: Arc<OwnedQueue>,
}

impl SharedState {
    /// Creates the state of a machine with `memory` bytes.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(queue: Arc<OwnedQueue>, memory: u64) -> Result<Arc<Self>> {
        let shared = Self {
            binds: BindTable::new(memory)?,
            overrun_floor: rcvbuf::overrun_floor(memory),
            accounts: Accounts::new()?,
            bounce_room: BounceRoom::new()?,
            queue,
        };
        Ok(Arc::new(shared, GFP_KERNEL)?)
    }
}
