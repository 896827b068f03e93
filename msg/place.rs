// SPDX-License-Identifier: GPL-2.0

//! Place of a queued message in the table of the paths of ports.

use super::path_table::{
    PathTable,
    PlaceIndex, //
};
use crate::proto::mprds::PathCount;
use kernel::sync::Arc;

/// A place that counts a message. The message has it until it is dropped.
pub(crate) struct MessagePlace {
    table: Arc<PathTable>,
    index: PlaceIndex,
}

impl MessagePlace {
    /// Adds a message from local port `port`, if there are `count` paths.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn new(table: &Arc<PathTable>, port: u16, count: PathCount) -> Self {
        Self {
            table: table.clone(),
            index: table.add(port, count),
        }
    }

    /// Returns the index of the path to which the message most likely belongs.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn path(&self) -> u8 {
        self.table.path(self.index)
    }

    /// Returns `true` if the message belongs to the queue of `path`, which is locked, see
    /// [`PathTable::belongs`].
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn belongs(&self, path: u8, is_open: bool) -> bool {
        self.table.belongs(self.index, path, is_open)
    }
}

impl Drop for MessagePlace {
    fn drop(&mut self) {
        self.table.remove(self.index);
    }
}
