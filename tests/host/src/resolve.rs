// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/resolve.rs`.

use crate::proto::resolve::AddrTimeouts;

/// A lost reply costs little time, and a slow neighbour gets the full time.
#[test]
fn limits_begin_short_and_grow() {
    let limits: Vec<u32> = AddrTimeouts::new().collect();
    assert_eq!(limits, [8, 16, 32, 64, 128, 256, 512, 984]);
    assert_eq!(limits.iter().sum::<u32>(), 2000);
}
