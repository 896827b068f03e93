// SPDX-License-Identifier: GPL-2.0

//! The other paths of a connection over TCP, and the paths of the local ports.
//!
//! Each path is a `Connection` with an index in its key. The first one has this set. The others
//! refer to the first one, and it to them, until they are forgotten. The set only stores them.

use super::event_mask::EventMask;
use crate::{
    kapi::{
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        time, //
    },
    msg::{
        MessagePlace,
        PathTable, //
    },
    proto::{
        map_order::MapOrder,
        mprds::PathCount, //
    }, //
};
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

/// Number of paths besides the first one.
const OTHERS: usize = PathCount::Eight.number() as usize - 1;

/// The other paths of a connection, by their index minus 1.
pub(super) type Others<C> = [Option<C>; OTHERS];

/// Returns the bit of a path in a mask.
const fn bit(path: u8) -> u32 {
    1 << (path as u32 % u32::BITS)
}

/// The other paths of a connection, references `C`, and the paths of its local ports.
#[pin_data]
pub(super) struct PathSet<C> {
    table: Arc<PathTable>,
    /// [`PathCount::number`] of the paths from which new ports choose. Changed with `others`
    /// locked.
    count: Atomic<u32>,
    /// Paths that take no messages of ports. Set with their queues locked.
    closed: EventMask,
    /// Paths in `others` whose messages move to the first one. Set with `others` locked.
    moving: EventMask,
    /// The peer has shown on the first path that it runs this module.
    peer_is_rds_rust: Atomic<bool>,
    /// The first path is not needed any more, so the others may be forgotten. Changed with `others`
    /// locked, so that the paths from which ports choose are not forgotten.
    retires: Atomic<bool>,
    /// [`PathCount::number`] of the paths that are needed.
    needed: Atomic<u32>,
    #[pin]
    others: SpinLockBh<Others<C>>,
    #[pin]
    maps: SpinLockBh<MapOrder>,
}

impl<C: Clone + Unpin> PathSet<C> {
    /// Creates a set without other paths.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        // CAST: any 16 bits will do.
        let table = PathTable::new(time::random_u32() as u16);
        let table = Arc::new(table, GFP_KERNEL)?;
        KBox::pin_init(
            pin_init!(Self {
                table,
                count: Atomic::new(1),
                closed: EventMask::new(),
                moving: EventMask::new(),
                peer_is_rds_rust: Atomic::new(false),
                retires: Atomic::new(false),
                needed: Atomic::new(1),
                others <- new_spinlock_bh!(Others::default(), "PathSet::others"),
                maps <- new_spinlock_bh!(MapOrder::default(), "PathSet::maps"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns a place for a message from a local port. The caller queues it where it belongs.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn place(&self, port: u16) -> MessagePlace {
        // CAST: stored as 16 bits.
        let count = PathCount::at_most(self.count.load(Relaxed) as u16);
        MessagePlace::new(&self.table, port, count)
    }

    /// Sets the number of paths from which new ports choose. If there are several, those that were
    /// closed are open again. No path has messages that move.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn publish(&self, count: PathCount) {
        let others = self.others.lock();
        if count > PathCount::One {
            self.retires.store(false, Relaxed);
            for path in (1..).take_while(|path| count.has(*path)) {
                self.closed.take(bit(path));
            }
        }
        self.set_count(count);
        drop(others);
    }

    /// Sets the number of paths from which new ports choose. `others` is locked.
    fn set_count(&self, count: PathCount) {
        self.count.store(count.number().into(), Relaxed);
    }

    /// Notes that all other paths but the first `kept` ones have to move their messages to the
    /// first one. Returns those paths, whose workers the caller wakes.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn begin_moves(&self, kept: PathCount) -> Others<C> {
        let others = self.others.lock();
        self.set_count(PathCount::One);
        self.retires.store(false, Relaxed);
        let mut moving = others.clone();
        for (path, other) in (1..).zip(&mut moving) {
            if kept.has(path) {
                // Not the last reference: the set has another one.
                *other = None;
            } else if other.is_some() {
                self.moving.set(bit(path));
            }
        }
        drop(others);
        moving
    }

    /// Notes that a path has moved all messages. Returns `true` if it had to.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn end_move(&self, path: u8) -> bool {
        self.moving.take(bit(path))
    }

    /// Makes a path count as one that has to move messages, and does not wake its worker.
    #[cfg(rds_kunit)]
    pub(super) fn begin_move(&self, path: u8) {
        self.moving.set(bit(path));
    }

    /// Returns `true` if a path has messages that have to move.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn is_moving(&self) -> bool {
        self.moving.has(u32::MAX)
    }

    /// Returns `true` if this path has messages that have to move.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn moves(&self, path: u8) -> bool {
        self.moving.has(bit(path))
    }

    /// Makes a path take no more messages of ports. They use the first one. The queue of the path
    /// is locked, and empty.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn close(&self, path: u8) {
        self.closed.set(bit(path));
        self.table.leave(path);
    }

    /// Returns `true` if a path takes messages of ports. Its queue is locked.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn is_open(&self, path: u8) -> bool {
        !self.closed.has(bit(path))
    }

    /// Gives a place the first path, if `path` does not exist.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn leave_if_missing(&self, path: u8, place: &MessagePlace) {
        // With the lock, so that nobody adds the path, and messages to it.
        let others = self.others.lock();
        let index = usize::from(path).checked_sub(1);
        let other = index.and_then(|index| others.get(index));
        if !matches!(other, Some(Some(_))) {
            place.belongs(path, false);
        }
    }

    /// Returns all other paths that exist.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn all(&self) -> Others<C> {
        self.others.lock().clone()
    }

    /// Returns another path, if it exists.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn get(&self, path: u8) -> Option<C> {
        let index = usize::from(path).checked_sub(1)?;
        self.others.lock().get(index)?.clone()
    }

    /// Adds another path, with its index. Called with the table of connections locked.
    pub(super) fn set(&self, path: u8, other: C) {
        self.put(path, Some(other));
    }

    /// Removes another path that was forgotten. The caller has another reference to it. Called with
    /// the table of connections locked. Returns `true` if the path had to move messages, of which
    /// there are none.
    pub(super) fn remove(&self, path: u8) -> bool {
        self.put(path, None);
        // A path without this bit gets it only as long as it is in the set.
        self.end_move(path)
    }

    fn put(&self, path: u8, value: Option<C>) {
        let mut others = self.others.lock();
        let index = usize::from(path).checked_sub(1);
        if let Some(slot) = index.and_then(|index| others.get_mut(index)) {
            *slot = value;
        }
    }

    /// Removes all other paths, because the module or the network namespace ends.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn clear(&self) {
        let others = core::mem::take(&mut *self.others.lock());
        drop(others);
    }

    /// Returns `true` if another path matches. `test` is called with a spinlock held.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn any(&self, test: impl Fn(&C) -> bool) -> bool {
        self.others.lock().iter().flatten().any(test)
    }

    /// Returns `true` if there are no other paths.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn is_empty(&self) -> bool {
        !self.any(|_| true)
    }

    /// Lets the other paths be forgotten. New ports use the first one, until the peer shows again
    /// that it has several.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn retire(&self) {
        let others = self.others.lock();
        self.set_count(PathCount::One);
        self.retires.store(true, Relaxed);
        drop(others);
    }

    /// Notes which implementation the peer runs, as the first path shows.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn note_peer(&self, is_rds_rust: bool) {
        self.peer_is_rds_rust.store(is_rds_rust, Relaxed);
    }

    /// Returns `true` if the peer has shown on the first path that it runs this module.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn peer_is_rds_rust(&self) -> bool {
        self.peer_is_rds_rust.load(Relaxed)
    }

    /// Notes how many paths are needed, with or without room. If there are several, and a handshake
    /// shows the peer, `peer_is_known`, the other paths may not be forgotten.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn note_needed(&self, count: PathCount, peer_is_known: bool) {
        let others = self.others.lock();
        self.needed.store(count.number().into(), Relaxed);
        if count > PathCount::One && peer_is_known {
            self.retires.store(false, Relaxed);
        }
        drop(others);
    }

    /// Returns `true` if the peer runs C RDS and may use several paths.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn is_needed_by_c(&self) -> bool {
        !self.peer_is_rds_rust() && self.needed.load(Relaxed) > 1
    }

    /// Returns the index of the first path that is needed and does not exist.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn first_missing(&self) -> Option<u8> {
        // CAST: stored from 16 bits.
        let needed = PathCount::at_most(self.needed.load(Relaxed) as u16);
        let others = self.others.lock();
        let mut paths = (1..).zip(others.iter());
        paths.find_map(|(path, other)| (needed.has(path) && other.is_none()).then_some(path))
    }

    /// Forgets the order of the congestion maps, with the last one.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn forget_maps(&self) {
        self.maps.lock().forget();
    }

    /// Notes a congestion map that has arrived on a path.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn note_map(&self, path: u8) {
        self.maps.lock().note(path, time::monotonic_ns());
    }

    /// Returns `true` if a newer congestion map than the last one may have come before it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn doubts_map(&self) -> bool {
        self.maps.lock().is_due(time::monotonic_ns())
    }

    /// Notes that a path is being connected again, so that the peer sends its congestion map.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn note_map_request(&self) {
        self.maps.lock().request(time::monotonic_ns());
    }

    /// Returns `true` if the other paths may be forgotten.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn retires(&self) -> bool {
        self.retires.load(Relaxed)
    }
}
