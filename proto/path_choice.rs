// SPDX-License-Identifier: GPL-2.0

//! Choice of the path for a message.
//!
//! The local port of a message determines its place in a table, and the place its path. Messages of
//! one socket to one peer have to arrive in order, and two paths have no common order. So all
//! messages of a place are on one path, until each is acknowledged or dropped. The next one then
//! takes the path that the place has with the present number of paths. No sender waits for that:
//! until then messages take the old path.
//!
//! Messages that have no number yet count, too, because a place counts its messages. A sender adds
//! a message to its place before it is queued, and the place keeps its path from then on. The
//! message is removed when it is dropped.
//!
//! A place is one word, so the caller changes it without a lock, by compare and exchange. These
//! rules keep the order when the messages of a path move to the first one:
//!
//! - With the queue of a path locked, a sender looks at the place again. If that has another path
//!   now, the message goes there. If the path is closed, the place gets the first path before.
//! - One context moves messages from the front of one queue to the end of the other. It locks one
//!   queue at a time. The path has no link while that goes on.
//! - When the queue is empty, and still locked, the path is closed, and all its places get the
//!   first path. It may be opened again later.
//!
//! The table is private to the sender: the receiver takes each message from any path.
//!
//! Ownership: none, a place has only numbers. Errors: none.

use super::mprds::PathCount;

/// Number of places, as a power of 2. Each of eight paths has four.
const BITS: u32 = 5;
pub(crate) const PLACES: usize = 1 << BITS;

/// 2^32 divided by the golden ratio. Multiples of it are spread evenly.
const GOLDEN: u32 = 0x9e37_79b1;

/// Returns the index of the place of a local port. `secret` is a random number, so that other hosts
/// cannot choose ports which share a path here.
pub(crate) fn place_of(port: u16, secret: u16) -> usize {
    let spread = u32::from(port ^ secret).wrapping_mul(GOLDEN);
    // CAST: less than the number of places.
    (spread >> (u32::BITS - BITS)) as usize
}

/// Returns the path that a place without messages gets, if there are `count` paths.
pub(crate) fn path_of(place: usize, count: PathCount) -> u8 {
    // CAST: less than 8.
    (place as u16 & count.number().wrapping_sub(1)) as u8
}

/// A place of local ports: its path, and the number of its messages there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// Bits of the path. The others count messages: memory is full long before they overflow.
    const PATH: u64 = 7;
    /// One message.
    const MESSAGE: u64 = 8;

    /// Creates a place without messages, on the first path.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// Creates a place from the word that [`Self::word`] has returned.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the place as a word.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Returns the path of all messages of the place.
    pub(crate) const fn path(self) -> u8 {
        // CAST: less than 8.
        (self.0 & Self::PATH) as u8
    }

    /// Returns `true` if no message is left.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 < Self::MESSAGE
    }

    /// Adds a message that will be queued. It takes path `wanted` if there is no other message.
    pub(crate) fn with_message(self, wanted: u8) -> Self {
        let before = match self.is_empty() {
            true => u64::from(wanted) & Self::PATH,
            false => self.0,
        };
        Self(before.saturating_add(Self::MESSAGE))
    }

    /// Removes a message that was added before, and is being dropped.
    pub(crate) const fn without_message(self) -> Self {
        match self.0.checked_sub(Self::MESSAGE) {
            Some(rest) => Self(rest),
            None => self,
        }
    }

    /// Gives the place the first path if it has `path`. Called with the queue of `path` locked,
    /// which has no message of the place any more.
    pub(crate) const fn leaving(self, path: u8) -> Self {
        match self.path() == path {
            true => Self(self.0 & !Self::PATH),
            false => self,
        }
    }
}
