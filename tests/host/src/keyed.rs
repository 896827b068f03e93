// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/keyed.rs`: keys that collide under other hash functions are spread.

use crate::proto::keyed::Secret;
use crate::sim::Rng;
use std::collections::HashSet;

/// Buckets of a host with 2 GiB, as a power of two.
const BITS: u32 = 17;

/// An address by its halves, and a port.
type Key = ((u64, u64), u64);

/// Returns the length of the longest list of a table with these keys.
fn longest(keys: &[Key], secret: &Secret) -> u32 {
    let mut lists = vec![0; 1 << BITS];
    for &(addr, port) in keys {
        let bucket = secret.hash(secret.address(addr), port << 48) >> (64 - BITS);
        lists[bucket as usize] += 1;
    }
    lists.into_iter().max().unwrap_or(0)
}

/// Asserts that lists are only as long as chance makes them, for any secret.
fn assert_spread(keys: &[Key]) {
    let distinct: HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    assert!(keys.len() <= 1 << BITS);
    for seed in 0..if cfg!(miri) { 1 } else { 16 } {
        let mut random = Rng(seed);
        let secret = Secret::new(|| (random.next() >> 32) as u32);
        let longest = longest(keys, &secret);
        // With one key per bucket, one table in 80 has a list of ten.
        assert!(
            longest <= 12,
            "{longest} of {} with seed {seed}",
            keys.len()
        );
    }
}

fn v4(host: u64) -> (u64, u64) {
    (0, 0xffff_7f00_0000 | host)
}

#[test]
fn the_ports_of_an_address_are_spread() {
    assert_spread(&(0..1 << 16).map(|port| (v4(1), port)).collect::<Vec<_>>());
    // The addresses of a port, too.
    assert_spread(
        &(0..1 << 16)
            .map(|host| (v4(host), 4000))
            .collect::<Vec<_>>(),
    );
}

/// The port compensates the address in a hash that multiplies by a constant and uses the upper
/// bits.
#[test]
fn ports_that_make_up_for_the_address_are_spread() {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut inverse = 1u64;
    while inverse.wrapping_mul(GOLDEN) & 0xffff != 1 {
        inverse += 2;
    }
    let keys = (0..20_000).map(|host| {
        let upper = v4(host).1.wrapping_mul(GOLDEN) >> 48;
        let port = 12_345u64.wrapping_sub(upper).wrapping_mul(inverse) & 0xffff;
        (v4(host), port)
    });
    assert_spread(&keys.collect::<Vec<_>>());
}

/// The port compensates a part of an IPv6 address in a hash that mixes both in one word.
#[test]
fn ports_that_cancel_a_part_of_the_address_are_spread() {
    let keys = (0..20_000).map(|port| ((0xfd00 << 48, port << 48 | 1), port));
    assert_spread(&keys.collect::<Vec<_>>());
    let halves = (0..20_000u64).map(|part| ((part, part.rotate_left(29) | 1 << 63), 4000));
    assert_spread(&halves.collect::<Vec<_>>());
}
