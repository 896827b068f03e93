// SPDX-License-Identifier: GPL-2.0

//! The memory of a program that peers may use.
//!
//! Two devices may give the same key, and the address of a socket may move from one to the other. So a region is known by
//! both: what a peer says counts for regions of the device that it is connected with. A program names one by the cookie
//! alone, and means the last that got it.

use crate::conn::{MrDevice, RemoteMemory};
use crate::kapi::{
    rdma::DeviceId,
    sync::{new_spinlock_bh, SpinLockBh},
};
use crate::proto::rdma::Cookie;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex},
};

/// How a region ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// It goes when a peer has used it.
    pub(crate) once: bool,
    /// Who frees it waits until no peer can use it.
    pub(crate) at_once: bool,
}

/// A region that a program has registered.
struct Registered {
    memory: KBox<dyn RemoteMemory>,
    ending: Ending,
    /// Higher than those of regions that were there before.
    number: u64,
}

/// Which region it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegionKey {
    rkey: u32,
    device: DeviceId,
}

/// The regions that there are.
struct MemoryTable {
    by_key: RBTree<RegionKey, Registered>,
    next: u64,
}

impl MemoryTable {
    /// Goes through the regions with the key, of whatever devices.
    fn for_each(&mut self, rkey: u32, mut f: impl FnMut(RegionKey, &Registered)) {
        let first = RegionKey {
            rkey,
            device: DeviceId::LEAST,
        };
        let mut next = self.by_key.cursor_lower_bound_mut(&first);
        while let Some(cursor) = next {
            let (key, region) = cursor.current();
            if key.rkey != rkey {
                break;
            }
            f(*key, region);
            next = cursor.move_next();
        }
    }

    /// The last region with the key, of those at the cookie's place if there is any there.
    fn find(&mut self, cookie: Cookie) -> Option<RegionKey> {
        let mut best: Option<(RegionKey, (bool, u64))> = None;
        self.for_each(cookie.rkey, |key, region| {
            let rank = (region.memory.cookie() == cookie, region.number);
            if best.is_none_or(|(_, other)| rank > other) {
                best = Some((key, rank));
            }
        });
        best.map(|(key, _)| key)
    }

    /// The region with the key, if there is one only.
    fn only(&mut self, rkey: u32) -> Option<RegionKey> {
        let (mut found, mut count) = (None, 0u32);
        self.for_each(rkey, |key, _| {
            found = Some(key);
            count = count.saturating_add(1);
        });
        found.filter(|_| count == 1)
    }
}

/// What a socket has registered. Nothing once it is closed.
#[pin_data]
pub(crate) struct Memory {
    #[pin]
    table: SpinLockBh<Option<MemoryTable>>,
    /// The devices that there were regions on: one, unless the socket's address has moved.
    #[pin]
    homes: Mutex<KVec<Arc<dyn MrDevice>>>,
}

impl Memory {
    pub(crate) fn new() -> impl PinInit<Self> {
        let table = MemoryTable {
            by_key: RBTree::new(),
            next: 0,
        };
        pin_init!(Self {
            table <- new_spinlock_bh!(Some(table), "Socket::memory"),
            homes <- new_mutex!(KVec::new(), "Socket::homes"),
        })
    }

    /// Adds a region. Fails with ENOMEM, or with EBADF if the socket is closed. Sleeps.
    pub(crate) fn add(&self, memory: KBox<dyn RemoteMemory>, ending: Ending) -> Result<RegionKey> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let home = memory.home();
        let key = RegionKey {
            rkey: memory.cookie().rkey,
            device: home.id(),
        };
        self.note_home(home)?;
        let mut table = self.table.lock();
        let Some(there) = &mut *table else {
            drop(table);
            return Err(EBADF);
        };
        let registered = Registered {
            memory,
            ending,
            number: there.next,
        };
        there.next = there.next.wrapping_add(1);
        // None: a device has given each of its keys once, and another device has another number.
        let before = there.by_key.insert(place.into_node(key, registered));
        drop(table);
        drop(before);
        Ok(key)
    }

    fn note_home(&self, home: Arc<dyn MrDevice>) -> Result {
        let mut homes = self.homes.lock();
        if !homes.iter().any(|known| known.id() == home.id()) {
            homes.retain(|known| !known.is_gone());
            homes.push(home, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// The devices that there were regions on. Fails with ENOMEM. Sleeps.
    pub(crate) fn homes(&self) -> Result<KVec<Arc<dyn MrDevice>>> {
        let homes = self.homes.lock();
        let mut found = KVec::with_capacity(homes.len(), GFP_KERNEL)?;
        for home in homes.iter() {
            found.push(home.clone(), GFP_KERNEL)?;
        }
        Ok(found)
    }

    /// Whether there is a region with the cookie's key. Any context but a hard interrupt.
    pub(crate) fn has(&self, cookie: Cookie) -> bool {
        let mut table = self.table.lock();
        (*table)
            .as_mut()
            .is_some_and(|it| it.find(cookie).is_some())
    }

    /// Takes the region away that a program means by the cookie, and tells where it was, and how it was to end; `None` if
    /// there is none with the key. Any context but a hard interrupt.
    pub(crate) fn remove(&self, cookie: Cookie) -> Option<(Arc<dyn MrDevice>, Ending)> {
        self.take(|table| table.find(cookie))
    }

    /// Takes a region away that was added. Any context but a hard interrupt.
    pub(crate) fn undo(&self, key: RegionKey) {
        self.take(|_| Some(key));
    }

    /// A peer that is connected with a device has used a region: one of that device, or, if the address has moved since it
    /// was used, the only one that has the key. Any context but a hard interrupt.
    pub(crate) fn used(&self, device: DeviceId, rkey: u32) {
        self.take(|table| {
            let key = RegionKey { rkey, device };
            let key = if table.by_key.get(&key).is_some() {
                key
            } else {
                table.only(rkey)?
            };
            let used = table.by_key.get(&key)?;
            used.ending.once.then_some(key)
        });
    }

    fn take(
        &self,
        which: impl FnOnce(&mut MemoryTable) -> Option<RegionKey>,
    ) -> Option<(Arc<dyn MrDevice>, Ending)> {
        let mut table = self.table.lock();
        let there = (*table).as_mut()?;
        let gone = which(there).and_then(|key| there.by_key.remove(&key));
        drop(table);
        gone.map(|it| (it.memory.home(), it.ending))
    }

    /// Takes all away, for ever. Process context; sleeps.
    pub(crate) fn close(&self) {
        let all = self.table.lock().take();
        drop(all);
        let homes = core::mem::replace(&mut *self.homes.lock(), KVec::new());
        drop(homes);
    }
}
