// SPDX-License-Identifier: GPL-2.0

//! Congestion maps of this node's addresses: one bit for each full port.

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
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

type Bits = [u64; cong_bits::WORDS];

/// The map of one address, allocated when one of its ports is congested for the first time.
struct Map {
    key: MapKey,
    bits: KBox<Bits>,
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
    /// Marks a port as full or not full. Returns `true` if that changes its state.
    fn mark(&mut self, port: u16, full: bool) -> bool {
        let changes = if full {
            cong_bits::set(&mut self.bits, port)
        } else {
            cong_bits::clear(&mut self.bits, port)
        };
        self.changed |= changes;
        self.full = match (changes, full) {
            (false, _) => self.full,
            (true, true) => self.full.saturating_add(1),
            (true, false) => self.full.saturating_sub(1),
        };
        changes
    }

    /// Returns `true` if no port is full, all peers know that, and the next round need not wait.
    /// So the map says no more than none would.
    fn is_unneeded(&self, now: u64) -> bool {
        self.full == 0 && !self.changed && self.rounds == 0 && self.pace.wait(now) == 0
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
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapKey {
    pub(crate) net: Net,
    pub(crate) addr: Ipv6Addr,
    pub(crate) scope: u32,
}

/// Room for maps, which several registries may share. Clones have the same room.
#[derive(Clone)]
pub(crate) struct MapRoom {
    used: Arc<Atomic<usize>>,
    most: usize,
    most_of_one: usize,
}

impl MapRoom {
    /// Creates room for `most` maps, of which one registry may have `most_of_one`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Result<Self> {
        let used = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        Ok(Self {
            used,
            most,
            most_of_one,
        })
    }

    /// Returns the room for a namespace. Those of users leave half of it to those of root.
    pub(crate) fn of(&self, is_of_user: bool) -> Self {
        let mut room = self.clone();
        if is_of_user {
            room.most /= 2;
        }
        room
    }

    /// Takes the room of a map.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is none.
    fn take(&self) -> Result<MapPlace> {
        let before = self.used.fetch_add(1, Relaxed);
        let place = MapPlace(self.used.clone());
        match before < self.most {
            true => Ok(place),
            false => Err(ENOMEM),
        }
    }
}

/// Room of one map. Dropping it gives the room back.
struct MapPlace(Arc<Atomic<usize>>);

impl Drop for MapPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The maps of all local addresses.
pub(crate) struct Registry {
    room: MapRoom,
    maps: Pin<KBox<SpinLockBh<KVec<Map>>>>,
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
            maps: KBox::pin_init(new_spinlock_bh!(KVec::new(), "Registry::maps"), GFP_KERNEL)?,
        })
    }

    /// Marks a port as full or not full. Returns `true` if that changes its state. A new address
    /// may take over the map of one that does not need it. `now` is a monotonic time in
    /// nanoseconds.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory or no room for the map of an address.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn mark(&self, key: MapKey, port: u16, full: bool, now: u64) -> Result<bool> {
        let mut maps = self.maps.lock();
        if let Some(map) = find(&mut maps, key) {
            return Ok(map.mark(port, full));
        }
        if !full {
            return Ok(false);
        }
        if let Some(map) = maps.iter_mut().find(|map| map.is_unneeded(now)) {
            map.key = key;
            return Ok(map.mark(port, full));
        }
        let has_room = maps.len() < self.room.most_of_one;
        drop(maps);
        if !has_room {
            return Err(ENOMEM);
        }
        let place = self.room.take()?;
        let mut fresh = KVec::with_capacity(1, GFP_ATOMIC)?;
        let bits = KBox::new([0; cong_bits::WORDS], GFP_ATOMIC)?;
        let map = Map {
            key,
            bits,
            full: 0,
            changed: false,
            rounds: 0,
            pace: MapPace::new(),
            _place: place,
        };
        fresh.push(map, GFP_ATOMIC)?;
        let mut maps = self.maps.lock();
        if find(&mut maps, key).is_none() {
            while let Some(map) = fresh.pop() {
                maps.push(map, GFP_ATOMIC)?;
            }
        }
        let changed = find(&mut maps, key).is_some_and(|map| map.mark(port, full));
        drop(maps);
        Ok(changed)
    }

    /// Returns the time in nanoseconds until the map of an address may be sent. 0 if there is none.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn wait(&self, key: MapKey, now: u64) -> u64 {
        find(&mut self.maps.lock(), key).map_or(0, |map| map.pace.wait(now))
    }

    /// Returns `true` if some peers may not have been sent the last change of a map.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn is_unsent(&self, key: MapKey) -> bool {
        find(&mut self.maps.lock(), key).is_some_and(|map| map.changed || map.rounds > 0)
    }

    /// Notes that the map of an address was sent to all its peers.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn end_round(&self, key: MapKey) {
        if let Some(map) = find(&mut self.maps.lock(), key) {
            map.rounds = map.rounds.saturating_sub(1);
        }
    }

    /// Begins a round for the map of an address. Returns `false` if the map has not changed or has
    /// to wait. Otherwise the caller sends the map to all peers of the address, and then calls
    /// [`Self::end_round`]. `now` is a monotonic time in nanoseconds.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn begin_round(&self, key: MapKey, now: u64) -> bool {
        find(&mut self.maps.lock(), key).is_some_and(|map| map.begin_round(now))
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
        let changed = maps.iter_mut().filter(|map| map.changed);
        let Some(map) = changed.min_by_key(|map| map.pace.due()) else {
            return NextRound::Done;
        };
        match map.begin_round(now) {
            true => NextRound::Send(map.key),
            false => NextRound::Wait(map.pace.wait(now)),
        }
    }

    /// Copies a part of an address's map in wire format (little-endian words), from byte `offset`
    /// on. Whole words only.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn copy_fragment(&self, key: MapKey, offset: u32, out: &mut [u8]) {
        let mut maps = self.maps.lock();
        match find(&mut maps, key) {
            Some(map) => {
                let words = map.bits.iter().skip(offset as usize / 8);
                for (to, word) in out.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
            None => out.fill(0),
        }
    }
}

fn find(maps: &mut KVec<Map>, key: MapKey) -> Option<&mut Map> {
    maps.iter_mut().find(|map| map.key == key)
}
