// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/resolve.rs`.

use crate::proto::{
    connect::Timing,
    resolve::{route_timeout_ms, AddrTimeouts},
};

/// A lost reply costs little time, and a slow neighbour gets the full time.
#[test]
fn limits_begin_short_and_grow() {
    let limits: Vec<u32> = AddrTimeouts::new().collect();
    assert_eq!(limits, [8, 16, 32, 64, 128, 256, 512, 984]);
    assert_eq!(limits.iter().sum::<u32>(), 2000);
}

#[test]
fn a_subnet_administrator_has_most_of_the_watchdog() {
    let watchdog_ms = Timing::default().watchdog_ms;
    let with = route_timeout_ms(true);
    assert!(route_timeout_ms(false) == 2000 && with > 2000);
    // The kernel sends eleven requests, and may round each timeout up by some 40 ms.
    let total = with / 10 * 11;
    assert!(total + 500 < watchdog_ms && total + 1000 > watchdog_ms);
}
