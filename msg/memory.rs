// SPDX-License-Identifier: GPL-2.0

//! The memory of a program that peers may use.

use crate::conn::{Home, RemoteMemory};
use crate::kapi::sync::{new_spinlock_bh, SpinLockBh};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex},
};

/// A region that a program has registered.
struct Registered {
    memory: KBox<dyn RemoteMemory>,
    /// It goes when a peer has used it.
    once: bool,
}

/// What a socket has registered, by key. Nothing once it is closed.
#[pin_data]
pub(crate) struct Memory {
    #[pin]
    by_key: SpinLockBh<Option<RBTree<u32, Registered>>>,
    /// The devices that there were regions on: one, unless the socket's address has moved.
    #[pin]
    homes: Mutex<KVec<Arc<dyn Home>>>,
}

impl Memory {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_key <- new_spinlock_bh!(Some(RBTree::new()), "Socket::memory"),
            homes <- new_mutex!(KVec::new(), "Socket::homes"),
        })
    }

    /// Adds a region. Fails with ENOMEM, or with EBADF if the socket is closed. Sleeps.
    pub(crate) fn add(&self, memory: KBox<dyn RemoteMemory>, once: bool) -> Result {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let rkey = memory.cookie().rkey;
        self.note_home(memory.home())?;
        let registered = Registered { memory, once };
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

    fn note_home(&self, home: Arc<dyn Home>) -> Result {
        let mut homes = self.homes.lock();
        if !homes.iter().any(|known| Arc::ptr_eq(known, &home)) {
            homes.retain(|known| !known.is_gone());
            homes.push(home, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// The devices that there were regions on. Fails with ENOMEM. Sleeps.
    pub(crate) fn homes(&self) -> Result<KVec<Arc<dyn Home>>> {
        let homes = self.homes.lock();
        let mut found = KVec::with_capacity(homes.len(), GFP_KERNEL)?;
        for home in homes.iter() {
            found.push(home.clone(), GFP_KERNEL)?;
        }
        Ok(found)
    }

    /// Whether there is a region with the key. Any context but a hard interrupt.
    pub(crate) fn has(&self, rkey: u32) -> bool {
        let by_key = self.by_key.lock();
        by_key
            .as_ref()
            .is_some_and(|tree| tree.get(&rkey).is_some())
    }

    /// Takes a region away, and tells where it was; `None` if there is none with the key. Any context but a hard interrupt.
    pub(crate) fn remove(&self, rkey: u32) -> Option<Arc<dyn Home>> {
        self.take(rkey, |_| true)
    }

    /// A peer has used a region. Any context but a hard interrupt.
    pub(crate) fn used(&self, rkey: u32) {
        self.take(rkey, |registered| registered.once);
    }

    fn take(&self, rkey: u32, goes: impl FnOnce(&Registered) -> bool) -> Option<Arc<dyn Home>> {
        let mut by_key = self.by_key.lock();
        let gone = match (*by_key).as_mut() {
            Some(tree) if tree.get(&rkey).is_some_and(goes) => tree.remove(&rkey),
            _ => None,
        };
        drop(by_key);
        gone.map(|it| it.memory.home())
    }

    /// Takes all away, for ever. Process context; sleeps.
    pub(crate) fn close(&self) {
        let all = self.by_key.lock().take();
        drop(all);
        let homes = core::mem::replace(&mut *self.homes.lock(), KVec::new());
        drop(homes);
    }
}
