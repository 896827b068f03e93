// SPDX-License-Identifier: GPL-2.0

//! Time limits of the search for a peer's hardware address.
//!
//! The connection manager asks the neighbour first, and waits for the answer then. One that comes in
//! between is missed, and found when the time is over. So that time is short at first.

/// The first limit, in milliseconds.
const FIRST_MS: u32 = 8;

/// All limits of an attempt together, in milliseconds. A neighbour is asked every second.
const TOTAL_MS: u32 = 2000;

/// The limits of one attempt to connect, in milliseconds, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct AddressPatience {
    next_ms: u32,
    left_ms: u32,
}

impl AddressPatience {
    pub(crate) const fn new() -> Self {
        Self {
            next_ms: FIRST_MS,
            left_ms: TOTAL_MS,
        }
    }
}

impl Iterator for AddressPatience {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let limit = self.next_ms.min(self.left_ms);
        self.left_ms = self.left_ms.saturating_sub(limit);
        self.next_ms = self.next_ms.saturating_mul(2);
        (limit > 0).then_some(limit)
    }
}
