// SPDX-License-Identifier: GPL-2.0

//! Congestion maps of this node's addresses: one bit for each full port.
//!
//! Programs decide how many addresses have maps, so no operation walks over them. They are in a
//! tree by address, and in trees by the time from which they may be sent.

use super::room::{
    MapCount,
    MapPlace,
    MapRoom, //
};
use crate::{
    kapi::{
        net::Net,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    },
    proto::{
        cong_bits,
        cong_pace::MapPace, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    }, //
};

type Bits = [u64; cong_bits::WORDS];

/// Position of a map in an order: the time from which it may be sent, and its address.
type DueKey = (u64, MapKey);

/// Memory of a map, which another one may use after it.
struct MapMemory {
    /// 0 for all ports, unless a map uses it.
    bits: KBox<Bits>,
    /// Memory of its entry in an order. `None` while it has one.
    entry: Option<RBTreeNodeReservation<DueKey, ()>>,
}

impl MapMemory {
    fn new() -> Result<Self> {
        Ok(Self {
            bits: KBox::new([0; cong_bits::WORDS], GFP_ATOMIC)?,
            entry: Some(RBTreeNodeReservation::new(GFP_ATOMIC)?),
        })
    }
}

/// Use of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MapStage {
    /// It has changed since its last round to all peers began.
    Changed,
    /// Peers have it, or get it in a round that has begun.
    Sent,
    /// No port is full, and all peers know that. So once the next round need not wait, the map says
    /// no more than none would.
    Unneeded,
}

/// The map of one address, allocated when one of its ports is congested for the first time.
struct Map {
    memory: MapMemory,
    /// Number of full ports.
    full: u32,
    /// The map has changed since its last round to all peers began.
    changed: bool,
    /// Number of rounds in progress.
    rounds: u32,
    pace: MapPace,
    _place: MapPlace,
}

impl Map {
    fn new(memory: MapMemory, place: MapPlace) -> Self {
        Self {
            memory,
            full: 0,
            changed: false,
            rounds: 0,
            pace: MapPace::new(),
            _place: place,
        }
    }

    /// Marks a port as full or not full. Returns `true` if that changes its state.
    fn mark(&mut self, port: u16, full: bool) -> bool {
        let changes = if full {
            cong_bits::set(&mut self.memory.bits, port)
        } else {
            cong_bits::clear(&mut self.memory.bits, port)
        };
        self.changed |= changes;
        self.full = match (changes, full) {
            (false, _) => self.full,
            (true, true) => self.full.saturating_add(1),
            (true, false) => self.full.saturating_sub(1),
        };
        changes
    }

    fn stage(&self) -> MapStage {
        match (self.changed, self.full, self.rounds) {
            (true, _, _) => MapStage::Changed,
            (false, 0, 0) => MapStage::Unneeded,
            (false, _, _) => MapStage::Sent,
        }
    }

    /// Begins a round, unless the map has not changed or has to wait.
    fn begin_round(&mut self, now: u64) -> bool {
        let begins = self.changed && self.pace.wait(now) == 0;
        if begins {
            self.pace.begin(now);
            self.changed = false;
            self.rounds = self.rounds.saturating_add(1);
        }
        begins
    }
}

/// Map to send next, see [`Registry::next_round`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRound {
    /// The map of this address goes to all its peers now.
    Send(MapKey),
    /// A changed map has to wait for this time in nanoseconds.
    Wait(u64),
    /// No map has changed.
    Done,
}

/// A local address. Link-local addresses differ by their scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MapKey {
    pub(crate) net: Net,
    pub(crate) addr: Ipv6Addr,
    pub(crate) scope: u32,
}

/// Maps in the order in which their next round may begin.
///
/// The time of a map changes only when a round begins, which takes it out of its order.
struct Orders {
    changed: RBTree<DueKey, ()>,
    unneeded: RBTree<DueKey, ()>,
}

impl Orders {
    /// Returns the order of maps at a stage, if they have one.
    fn at(&mut self, stage: MapStage) -> Option<&mut RBTree<DueKey, ()>> {
        match stage {
            MapStage::Changed => Some(&mut self.changed),
            MapStage::Unneeded => Some(&mut self.unneeded),
            MapStage::Sent => None,
        }
    }
}

/// All maps of a registry.
struct Maps {
    by_key: RBTree<MapKey, Map>,
    orders: Orders,
}

impl Maps {
    fn new() -> Self {
        Self {
            by_key: RBTree::new(),
            orders: Orders {
                changed: RBTree::new(),
                unneeded: RBTree::new(),
            },
        }
    }

    /// Adds a map, unless the address has one. Does nothing without `fresh`.
    fn add(&mut self, key: MapKey, fresh: &mut Option<RBTreeNode<MapKey, Map>>) {
        if self.by_key.get(&key).is_some() {
            return;
        }
        if let Some(node) = fresh.take() {
            // No other map has the address.
            drop(self.by_key.insert(node));
        }
    }

    /// Calls `f` for the map of an address, if there is one, and moves it to its order.
    fn update<R>(&mut self, key: MapKey, f: impl FnOnce(&mut Map) -> R) -> Option<R> {
        let map = self.by_key.get_mut(&key)?;
        let (before, due) = (map.stage(), (map.pace.due(), key));
        let result = f(map);
        let stage = map.stage();
        if stage == before {
            return Some(result);
        }
        let entry = self.orders.at(before).and_then(|it| it.remove_node(&due));
        if let Some(entry) = entry {
            map.memory.entry = Some(entry.into_reservation());
        }
        if let Some(order) = self.orders.at(stage) {
            if let Some(entry) = map.memory.entry.take() {
                // No other map has the address.
                drop(order.insert(entry.into_node((map.pace.due(), key), ())));
            }
        }
        Some(result)
    }

    /// Removes the map that has been unneeded for longest, and need not wait.
    fn take_unneeded(&mut self, now: u64) -> Option<Map> {
        let unneeded = &mut self.orders.unneeded;
        let first = unneeded.keys().next().copied();
        let due = first.filter(|(at, _)| *at <= now)?;
        let entry = unneeded.remove_node(&due)?;
        let mut map = self.by_key.remove(&due.1)?;
        map.memory.entry = Some(entry.into_reservation());
        Some(map)
    }
}

/// The maps of all local addresses.
pub(crate) struct Registry {
    room: MapRoom,
    /// Number of these maps.
    count: MapCount,
    maps: Pin<KBox<SpinLockBh<Maps>>>,
}

impl Registry {
    /// Creates a registry without maps.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(room: MapRoom) -> Result<Self> {
        Ok(Self {
            room,
            count: MapCount::new()?,
            maps: KBox::pin_init(new_spinlock_bh!(Maps::new(), "Registry::maps"), GFP_KERNEL)?,
        })
    }

    /// Marks a port as full or not full. Returns `true` if that changes its state. A new address
    /// may take over the map of one that does not need it. `user` has the number of maps of the
    /// user who needs it, if that is limited. `now` is a monotonic time in nanoseconds.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory or no room for the map of an address.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn mark(
        &self,
        key: MapKey,
        port: u16,
        full: bool,
        now: u64,
        user: Option<&MapCount>,
    ) -> Result<bool> {
        let mut maps = self.maps.lock();
        if let Some(changes) = maps.update(key, |map| map.mark(port, full)) {
            return Ok(changes);
        }
        if !full {
            return Ok(false);
        }
        let unneeded = maps.take_unneeded(now);
        drop(maps);
        // The place of the other map is given back first.
        let memory = unneeded.map(|map| map.memory);
        let place = self.room.take(&self.count, user)?;
        let memory = match memory {
            Some(memory) => memory,
            None => MapMemory::new()?,
        };
        let map = Map::new(memory, place);
        // Declared before the lock, so that a map which is not needed is dropped after it.
        let mut fresh = Some(RBTreeNode::new(key, map, GFP_ATOMIC)?);
        let mut maps = self.maps.lock();
        maps.add(key, &mut fresh);
        let changes = maps.update(key, |map| map.mark(port, full));
        drop(maps);
        Ok(changes.unwrap_or(false))
    }

    /// Returns the time in nanoseconds until the map of an address may be sent. 0 if there is none.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn wait(&self, key: MapKey, now: u64) -> u64 {
        let maps = self.maps.lock();
        maps.by_key.get(&key).map_or(0, |map| map.pace.wait(now))
    }

    /// Returns `true` if some peers may not have been sent the last change of a map.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn is_unsent(&self, key: MapKey) -> bool {
        let maps = self.maps.lock();
        let map = maps.by_key.get(&key);
        map.is_some_and(|map| map.changed || map.rounds > 0)
    }

    /// Notes that the map of an address was sent to all its peers.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn end_round(&self, key: MapKey) {
        self.maps
            .lock()
            .update(key, |map| map.rounds = map.rounds.saturating_sub(1));
    }

    /// Begins a round for the map of an address. Returns `false` if the map has not changed or has
    /// to wait. Otherwise the caller sends the map to all peers of the address, and then calls
    /// [`Self::end_round`]. `now` is a monotonic time in nanoseconds.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn begin_round(&self, key: MapKey, now: u64) -> bool {
        let mut maps = self.maps.lock();
        maps.update(key, |map| map.begin_round(now))
            .unwrap_or(false)
    }

    /// Begins the next round: the caller sends the map to all peers of its address, and then calls
    /// [`Self::end_round`]. `now` is a monotonic time in nanoseconds.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn next_round(&self, now: u64) -> NextRound {
        let mut maps = self.maps.lock();
        // Rounds of an address with many peers take longer than their interval. So the map that is
        // due first goes first.
        let first = maps.orders.changed.keys().next().copied();
        let Some((_, key)) = first else {
            return NextRound::Done;
        };
        match maps.update(key, |map| (map.begin_round(now), map.pace.wait(now))) {
            Some((true, _)) => NextRound::Send(key),
            Some((false, wait)) => NextRound::Wait(wait),
            None => NextRound::Done,
        }
    }

    /// Copies a part of an address's map in wire format (little-endian words), from byte `offset`
    /// on. Whole words only.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn copy_fragment(&self, key: MapKey, offset: u32, out: &mut [u8]) {
        let maps = self.maps.lock();
        match maps.by_key.get(&key) {
            Some(map) => {
                let words = map.memory.bits.iter().skip(offset as usize / 8);
                for (to, word) in out.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
            None => out.fill(0),
        }
    }
}
