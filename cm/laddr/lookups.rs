// SPDX-License-Identifier: GPL-2.0

//! Lookups in progress.
//!
//! Each thread of a program may have one, and any user has millions of loopback addresses. So they
//! are in a tree, whose memory is allocated without a lock.

use super::table::{
    AddrKey,
    Epoch, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

/// The address of a lookup, and the epoch in which it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LookupKey {
    addr: AddrKey,
    epoch: Epoch,
}

impl LookupKey {
    pub(crate) fn new(addr: AddrKey, epoch: Epoch) -> Self {
        Self { addr, epoch }
    }
}

/// Memory for one lookup.
pub(crate) struct LookupPlace<V>(RBTreeNodeReservation<LookupKey, V>);

impl<V> LookupPlace<V> {
    /// Allocates the memory.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL)?))
    }
}

/// Lookups in progress.
pub(crate) struct Lookups<V> {
    tree: RBTree<LookupKey, V>,
}

impl<V: Clone> Lookups<V> {
    /// Creates the object without lookups.
    pub(crate) fn new() -> Self {
        Self {
            tree: RBTree::new(),
        }
    }

    /// Begins a lookup. Returns the one with this key if it is in progress already.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn begin(&mut self, key: LookupKey, value: V, place: LookupPlace<V>) -> Option<V> {
        if let Some(other) = self.tree.get(&key) {
            return Some(other.clone());
        }
        drop(self.tree.insert(place.0.into_node(key, value)));
        None
    }

    /// Ends a lookup that has begun. The caller drops the result without a lock.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn end(&mut self, key: &LookupKey) -> Option<V> {
        self.tree.remove(key)
    }
}
