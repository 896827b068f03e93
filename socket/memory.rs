// SPDX-License-Identifier: GPL-2.0

//! Memory regions that a socket has registered for access by peers.
//!
//! Two devices may assign the same key, and a socket's address may move between them. So a region
//! is identified by device and key. Keys in messages of a peer refer to the device that is
//! connected with the peer. A program passes only a cookie, which refers to the last region with
//! that key.

use crate::{
    kapi::{
        rdma::DeviceId,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    },
    proto::rdma::Cookie,
    rdma_mem::{
        MrDevice,
        RemoteMemory, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Rules for the end of a region.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// The region ends when a peer has used it.
    pub(crate) once: bool,
    /// Freeing the region waits until no peer can access it.
    pub(crate) at_once: bool,
}

/// A region that a program has registered.
struct Registered {
    memory: KBox<dyn RemoteMemory>,
    ending: Ending,
    /// Registration number, in ascending order.
    number: u64,
}

/// Identity of a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegionKey {
    rkey: u32,
    device: DeviceId,
}

/// The registered regions.
struct MemoryTable {
    by_key: RBTree<RegionKey, Registered>,
    next: u64,
}

impl MemoryTable {
    /// Calls `f` for the regions with the key on all devices.
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

    /// Returns the last region with the key, preferring regions with the whole cookie.
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

    /// Returns the region with the key if there is exactly one.
    fn only(&mut self, rkey: u32) -> Option<RegionKey> {
        let (mut found, mut count) = (None, 0u32);
        self.for_each(rkey, |key, _| {
            found = Some(key);
            count = count.saturating_add(1);
        });
        found.filter(|_| count == 1)
    }
}

/// The regions of a socket. Empty once the socket is closed.
#[pin_data]
pub(crate) struct Memory {
    #[pin]
    table: SpinLockBh<Option<MemoryTable>>,
    /// Devices that have or had regions of the socket: one, unless the socket's address has moved.
    #[pin]
    mr_devices: Mutex<KVec<Arc<dyn MrDevice>>>,
}

impl Memory {
    pub(crate) fn new() -> impl PinInit<Self> {
        let table = MemoryTable {
            by_key: RBTree::new(),
            next: 0,
        };
        pin_init!(Self {
            table <- new_spinlock_bh!(Some(table), "Socket::memory"),
            mr_devices <- new_mutex!(KVec::new(), "Socket::mr_devices"),
        })
    }

    /// Adds a region.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EBADF` if the socket is closed.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn add(&self, memory: KBox<dyn RemoteMemory>, ending: Ending) -> Result<RegionKey> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mr_device = memory.mr_device();
        let key = RegionKey {
            rkey: memory.cookie().rkey,
            device: mr_device.id(),
        };
        self.note_mr_device(mr_device)?;
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
        // There is none: a device assigns each of its keys once, and device numbers are unique.
        let before = there.by_key.insert(place.into_node(key, registered));
        drop(table);
        drop(before);
        Ok(key)
    }

    fn note_mr_device(&self, mr_device: Arc<dyn MrDevice>) -> Result {
        let mut mr_devices = self.mr_devices.lock();
        if !mr_devices.iter().any(|known| known.id() == mr_device.id()) {
            mr_devices.retain(|known| !known.is_removed());
            mr_devices.push(mr_device, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// Returns the devices that have or had regions of the socket.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn mr_devices(&self) -> Result<KVec<Arc<dyn MrDevice>>> {
        let mr_devices = self.mr_devices.lock();
        let mut found = KVec::with_capacity(mr_devices.len(), GFP_KERNEL)?;
        for mr_device in mr_devices.iter() {
            found.push(mr_device.clone(), GFP_KERNEL)?;
        }
        Ok(found)
    }

    /// Returns `true` if there is a region with the cookie's key.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn has(&self, cookie: Cookie) -> bool {
        let mut table = self.table.lock();
        (*table)
            .as_mut()
            .is_some_and(|it| it.find(cookie).is_some())
    }

    /// Removes the region that the cookie refers to. Returns its device and its rules, or `None` if
    /// no region has the key.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn remove(&self, cookie: Cookie) -> Option<(Arc<dyn MrDevice>, Ending)> {
        self.take(|table| table.find(cookie))
    }

    /// Removes a region that was just added.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn undo(&self, key: RegionKey) {
        self.take(|_| Some(key));
    }

    /// Handles the use of a region by a peer that is connected with `device`. Removes the region if
    /// it is for one use.
    ///
    /// If the address has moved, the region may be on another device. Then the only region with the
    /// key is meant.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
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
        gone.map(|it| (it.memory.mr_device(), it.ending))
    }

    /// Removes all regions and accepts no more.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn close(&self) {
        let all = self.table.lock().take();
        drop(all);
        let mr_devices = core::mem::replace(&mut *self.mr_devices.lock(), KVec::new());
        drop(mr_devices);
    }
}
