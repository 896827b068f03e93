// SPDX-License-Identifier: GPL-2.0

//! Timeouts for the resolution of a peer's hardware address, and of the route to it.
//!
//! The CM sends a neighbour request before it begins to wait for the reply. It misses a reply in
//! between and finds the address only when the timeout expires. So the first timeouts are short.

/// First timeout of an attempt.
const FIRST_MS: u32 = 8;

/// Sum of all timeouts of an attempt. The kernel asks a neighbour once per second.
const TOTAL_MS: u32 = 2000;

/// Returns the timeout in milliseconds for a route. A subnet administrator answers slowly while a
/// cluster boots. The kernel sends it eleven requests, each with a tenth of this. So its time ends
/// before the watchdog of [`super::connect::Timing`] does.
pub(crate) const fn route_timeout_ms(has_subnet_administrator: bool) -> u32 {
    if has_subnet_administrator {
        4000
    } else {
        TOTAL_MS
    }
}

/// Iterator over the timeouts of one attempt to connect, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct AddrTimeouts {
    next_ms: u32,
    left_ms: u32,
}

impl AddrTimeouts {
    pub(crate) const fn new() -> Self {
        Self {
            next_ms: FIRST_MS,
            left_ms: TOTAL_MS,
        }
    }
}

impl Iterator for AddrTimeouts {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let limit = self.next_ms.min(self.left_ms);
        self.left_ms = self.left_ms.saturating_sub(limit);
        self.next_ms = self.next_ms.saturating_mul(2);
        (limit > 0).then_some(limit)
    }
}
