// SPDX-License-Identifier: GPL-2.0

//! The memory of a program that peers may use.

use crate::conn::RemoteMemory;
use crate::kapi::sync::{new_spinlock_bh, SpinLockBh};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
};

/// A region that a program has registered.
struct Registered {
    _memory: KBox<dyn RemoteMemory>,
    /// It goes when a peer has used it.
    once: bool,
}

/// What a socket has registered, by key. Nothing once it is closed.
#[pin_data]
pub(crate) struct Memory {
    #[pin]
    by_key: SpinLockBh<Option<RBTree<u32, Registered>>>,
}

impl Memory {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_key <- new_spinlock_bh!(Some(RBTree::new()), "Socket::memory"),
        })
    }

    /// Adds a region. Fails with ENOMEM, or with EBADF if the socket is closed. May sleep.
    pub(crate) fn add(&self, memory: KBox<dyn RemoteMemory>, once: bool) -> Result {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let rkey = memory.cookie().rkey;
        let registered = Registered {
            _memory: memory,
            once,
        };
        let node = place.into_node(rkey, registered);
        let mut by_key = self.by_key.lock();
        let Some(tree) = &mut *by_key else {
            drop(by_key);
            drop(node);
            return Err(EBADF);
        };
        // A key that another one had belonged to one that is gone with its device.
        let before = tree.insert(node);
        drop(by_key);
        drop(before);
        Ok(())
    }

    /// Whether there is a region with the key. Any context but a hard interrupt.
    pub(crate) fn has(&self, rkey: u32) -> bool {
        let by_key = self.by_key.lock();
        by_key
            .as_ref()
            .is_some_and(|tree| tree.get(&rkey).is_some())
    }

    /// Takes a region away; false if there is none with the key. Any context but a hard interrupt.
    pub(crate) fn remove(&self, rkey: u32) -> bool {
        self.take(rkey, |_| true)
    }

    /// A peer has used a region. Any context but a hard interrupt.
    pub(crate) fn used(&self, rkey: u32) {
        self.take(rkey, |registered| registered.once);
    }

    fn take(&self, rkey: u32, goes: impl FnOnce(&Registered) -> bool) -> bool {
        let mut by_key = self.by_key.lock();
        let gone = match (*by_key).as_mut() {
            Some(tree) if tree.get(&rkey).is_some_and(goes) => tree.remove(&rkey),
            _ => None,
        };
        drop(by_key);
        gone.is_some()
    }

    /// Takes all away, for ever. Any context but a hard interrupt.
    pub(crate) fn close(&self) {
        let all = self.by_key.lock().take();
        drop(all);
    }
}
