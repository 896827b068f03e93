// SPDX-License-Identifier: GPL-2.0

//! Tests of `kapi/rdma/arena.rs` and `shard.rs` that need a device, timers or threads. The others
//! are in `tests/kunit/recv_pool.rs` and `tests/kunit/arenas.rs`.

use super::{pd::Pd, Arena, Batch, GrowError};
use crate::{
    bindings::device,
    kapi::sync::{run_timers, OwnedQueue},
    prelude::*,
    sync::Arc,
};

const SIZE: u32 = 4352;
const ORDER: u32 = 1;
/// Slots of a shard of two pages.
const SLOTS: usize = 1;

fn grow(arena: &Arena) -> Result<(), GrowError> {
    arena.grow(ORDER, ORDER, usize::MAX, true)
}

#[test]
fn a_revoked_arena_is_not_mapped() {
    let pd = Pd::new();
    let arena = Arena::new(Some(&pd), None, SIZE).unwrap();
    for _ in 0..3 {
        grow(&arena).unwrap();
    }
    let mut buf = Arena::take_one(&arena).unwrap();
    buf.bytes_mut().fill(5);
    assert!(device(|device| device.mapped) > 0);
    let user = super::domain::Domain::enter(pd.domain()).unwrap();
    assert_eq!(arena.revoke(), Err(EBUSY));
    drop(user);
    arena.revoke().unwrap();
    assert_eq!(device(|device| device.mapped), 0);
    assert!(super::domain::Domain::enter(pd.domain()).is_err());
    assert_eq!(grow(&arena), Err(GrowError::Revoked));
    assert!(Arena::take_one(&arena).is_none());
    // Dropping the last handle ends the arena.
    drop(arena);
    let first = buf.freeze();
    let second = first.clone();
    drop(first);
    let buf = second.thaw().ok().unwrap();
    assert!(buf.bytes().iter().all(|byte| *byte == 5));
}

#[test]
fn unused_shards_are_freed_after_a_while() {
    let queue = Arc::new(OwnedQueue, GFP_KERNEL).unwrap();
    let arena = Arena::new(None, Some(queue), SIZE).unwrap();
    for _ in 0..4 {
        grow(&arena).unwrap();
    }
    let mut batch = Batch::new();
    assert_eq!(Arena::take(&arena, 4, &mut batch), 4 * SLOTS);
    drop(batch);
    let mut shards = Vec::new();
    while run_timers() > 0 {
        shards.push(arena.stats().shards);
    }
    // Only the spare shard stays, and no timer is armed for it.
    assert_eq!(shards, [4, 1]);

    // A timer that is armed when the arena is revoked does not keep it alive.
    grow(&arena).unwrap();
    drop(Arena::take_one(&arena));
    arena.revoke().unwrap();
    assert_eq!(run_timers(), 0);
}

/// A waiter for the lock waits while a few shards are unmapped, never for all of them.
#[test]
fn a_lock_is_not_held_for_all_shards() {
    const SHARDS: usize = 100;
    let pd = Pd::new();
    let arena = Arena::new(Some(&pd), None, SIZE).unwrap();
    let fill = || {
        while arena.stats().shards < SHARDS {
            grow(&arena).unwrap();
        }
        let take = |_| Arena::take_one(&arena).unwrap();
        (0..SHARDS * SLOTS).map(take).collect::<Vec<_>>()
    };
    let most = |what: &dyn Fn()| {
        device(|device| (device.unmapped, device.most_unmapped) = (0, 0));
        what();
        device(|device| device.most_unmapped)
    };
    drop(fill());
    let bytes = arena.stats().bytes;
    assert_eq!(arena.trimmable(), bytes);
    arena.reap();
    let reaped = most(&|| arena.reap());
    assert_eq!(arena.stats().shards, 1);
    assert_eq!(arena.trimmable(), bytes / SHARDS);
    drop(fill());
    let trimmed = most(&|| assert_eq!(arena.trim(usize::MAX), bytes));
    let bufs = fill();
    assert_eq!(arena.trimmable(), 0);
    let revoked = most(&|| arena.revoke().unwrap());
    assert_eq!(device(|device| device.mapped), 0);
    drop(bufs);
    assert_eq!(arena.stats().shards, 0);
    for most in [reaped, trimmed, revoked] {
        assert!((1..=16).contains(&most), "{most}");
    }
}

/// Buffers are taken, shared between threads and dropped by the last thread.
#[test]
fn handles_end_on_any_thread() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };
    let arena = Arena::new(None, None, SIZE).unwrap();
    for _ in 0..2 {
        grow(&arena).unwrap();
    }
    std::thread::scope(|scope| {
        for mark in 0..2u8 {
            let arena = &arena;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let Some(mut buf) = Arena::take_one(arena) else {
                        continue;
                    };
                    buf.bytes_mut()[..8].fill(mark);
                    let first = buf.freeze();
                    let second = first.clone();
                    let other = std::thread::spawn(move || drop(second));
                    // This may be the only handle, or not.
                    match first.thaw() {
                        Ok(mut buf) => buf.bytes_mut()[..8].fill(!mark),
                        Err(first) => drop(first),
                    }
                    other.join().unwrap();
                }
            });
        }
    });
    let stats = arena.stats();
    assert_eq!((stats.in_use, stats.empty), (0, 2));
    assert_eq!(arena.trim(usize::MAX), stats.bytes);
}
