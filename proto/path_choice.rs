// SPDX-License-Identifier: GPL-2.0

//! Choice of the path for a message.
//!
//! The local port of a message determines its place in a table, and the place its path. Messages of
//! one socket to one peer have to arrive in order, and two paths have no common order. So a place
//! keeps its path until the last message that was queued there is acknowledged. Until then no
//! sender waits: its messages take the old path.
//!
//! The table is private to the sender: the receiver takes each message from any path.
//!
//! Ownership: none, the table has only numbers. Errors: none.

#![cfg_attr(not(test), expect(dead_code, reason = "connections have one path"))]

use super::mprds::PathCount;

/// Number of places, as a power of 2. Each of eight paths has four.
const BITS: u32 = 5;
const PLACES: usize = 1 << BITS;

/// 2^32 divided by the golden ratio. Multiples of it are spread evenly.
const GOLDEN: u32 = 0x9e37_79b1;

/// Place in the table. Several ports share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    path: u8,
    /// Sequence number of the last message on that path. 0 if there was none.
    last: u64,
}

/// Paths of the local ports to one peer.
#[derive(Clone, Debug)]
pub(crate) struct PathTable {
    secret: u16,
    places: [Place; PLACES],
}

impl PathTable {
    /// Creates a table in which all ports use the first path. `secret` is a random number, so that
    /// other hosts cannot choose ports which share a path here.
    pub(crate) const fn new(secret: u16) -> Self {
        Self {
            secret,
            places: [Place { path: 0, last: 0 }; PLACES],
        }
    }

    /// Returns the index of the place of a port.
    fn index(&self, port: u16) -> usize {
        let spread = u32::from(port ^ self.secret).wrapping_mul(GOLDEN);
        // CAST: less than the number of places.
        (spread >> (u32::BITS - BITS)) as usize
    }

    /// Returns the path of the next message from local port `port`, if there are `count` paths.
    /// `is_acked` returns `true` if the peer has acknowledged a message of a path.
    ///
    /// The caller queues the message and calls [`Self::note_queued`] before the next call.
    pub(crate) fn choose(
        &mut self,
        port: u16,
        count: PathCount,
        is_acked: impl FnOnce(u8, u64) -> bool,
    ) -> u8 {
        let index = self.index(port);
        let Some(place) = self.places.get_mut(index) else {
            return 0;
        };
        // CAST: less than 8.
        let wanted = (index as u16 & count.number().wrapping_sub(1)) as u8;
        if place.path != wanted && (place.last == 0 || is_acked(place.path, place.last)) {
            *place = Place {
                path: wanted,
                last: 0,
            };
        }
        place.path
    }

    /// Notes that the message for which a path was chosen is queued there, with this number.
    pub(crate) fn note_queued(&mut self, port: u16, sequence: u64) {
        let index = self.index(port);
        if let Some(place) = self.places.get_mut(index) {
            place.last = sequence;
        }
    }

    /// Notes that all queued messages were moved to the first path. The last one in its queue has
    /// the number `last`; 0 if there is none.
    pub(crate) fn use_first(&mut self, last: u64) {
        self.places = [Place { path: 0, last }; PLACES];
    }
}
