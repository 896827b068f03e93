// SPDX-License-Identifier: GPL-2.0

//! Paths of the local ports to one peer, by the rules of `proto::path_choice`.
//!
//! Senders change the places without a lock, so those on different paths wait for none of each
//! other. The queues have locks of their own.
//!
//! `tests/loom` also compiles this file.
//!
//! Ownership: none, the table has only numbers. The owner of a message removes it from its place.
//! Errors: none.

use crate::proto::{
    mprds::PathCount,
    path_choice::{
        path_of,
        place_of,
        Place,
        PLACES, //
    }, //
};
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// Index of a place in the table, from [`PathTable::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceIndex(u8);

/// The places of all local ports.
pub(crate) struct PathTable<const N: usize = PLACES> {
    secret: u16,
    words: [Atomic<u64>; N],
}

impl<const N: usize> PathTable<N> {
    /// Creates a table in which all ports use the first path. `secret` is a random number.
    pub(crate) const fn new(secret: u16) -> Self {
        Self {
            secret,
            words: [const { Atomic::new(Place::new().word()) }; N],
        }
    }

    /// Changes a place, and returns it.
    fn change(word: &Atomic<u64>, change: impl Fn(Place) -> Place) -> Place {
        let mut old = word.load(Relaxed);
        loop {
            let place = change(Place::from_word(old));
            // The order is full, so a sender that finds a place empty comes after the drop of the
            // last message.
            match word.cmpxchg(old, place.word(), Full) {
                Ok(_) => return place,
                Err(now) => old = now,
            }
        }
    }

    fn change_at(&self, PlaceIndex(index): PlaceIndex, change: impl Fn(Place) -> Place) {
        if let Some(word) = self.words.get(usize::from(index)) {
            Self::change(word, change);
        }
    }

    /// Adds a message from local port `port`, which the caller queues where it
    /// [`belongs`](Self::belongs), if there are `count` paths. The caller calls [`Self::remove`]
    /// when the message is dropped.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn add(&self, port: u16, count: PathCount) -> PlaceIndex {
        let index = place_of(port, self.secret);
        let wanted = path_of(index, count);
        // CAST: less than the number of places.
        let index = PlaceIndex(index as u8);
        self.change_at(index, |place| place.with_message(wanted));
        index
    }

    /// Removes a message that is being dropped.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn remove(&self, index: PlaceIndex) {
        self.change_at(index, Place::without_message);
    }

    /// Returns the path of a place.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn path(&self, PlaceIndex(index): PlaceIndex) -> u8 {
        let word = self.words.get(usize::from(index));
        let word = word.map_or(0, |word| word.load(Relaxed));
        Place::from_word(word).path()
    }

    /// Returns `true` if a message at this place belongs to the queue of `path`. That queue is
    /// locked, and has all earlier messages of the port, apart from those that have moved to the
    /// first path. Otherwise the caller tries again with the [`Self::path`] that the place has now.
    ///
    /// `is_open`: the path takes messages. The first one always does.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn belongs(&self, index: PlaceIndex, path: u8, is_open: bool) -> bool {
        if self.path(index) != path {
            return false;
        }
        if path == 0 || is_open {
            return true;
        }
        // The number of paths was larger when the message was added.
        self.change_at(index, |place| place.leaving(path));
        false
    }

    /// Gives the places of a path the first one. The queue of the path is locked and empty, and the
    /// caller closes it before it is unlocked.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn leave(&self, path: u8) {
        for word in &self.words {
            Self::change(word, |place| place.leaving(path));
        }
    }
}
