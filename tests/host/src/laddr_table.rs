// SPDX-License-Identifier: GPL-2.0

//! Tests of `cm/laddr/table.rs`: cached answers about local addresses, and their lifetime.

use proptest::prelude::*;
use std::{
    collections::HashMap,
    net::Ipv6Addr,
    sync::{
        atomic::{self, AtomicU64, Ordering},
        Mutex,
    },
    thread,
};
use table::*;

#[path = "../../../cm/laddr/table.rs"]
mod table;

const SETS: usize = 8;

type Small = AddrTable<Box<[Set; SETS]>, SETS>;

fn small() -> Small {
    AddrTable::new(Box::new([const { Set::new() }; SETS]))
}

fn key(number: u64) -> AddrKey {
    AddrKey::new((0xfd09 << 48, number), 0)
}

#[test]
fn a_key_is_an_address_and_a_scope() {
    let addr: Ipv6Addr = "fe80::12:3456".parse().unwrap();
    let bits = addr.to_bits();
    let key = AddrKey::new(((bits >> 64) as u64, bits as u64), 7);
    assert_eq!((key.addr(), key.scope()), (addr, 7));
}

#[test]
fn both_answers_are_remembered() {
    let (table, mut writer) = (small(), TableWriter::new());
    assert_eq!(table.get(&key(1)), None);
    for answer in [Some(0), Some(i32::MAX as u32), None, Some(5)] {
        table.insert(&mut writer, &key(1), answer, table.epoch());
        assert_eq!(table.get(&key(1)), Some(answer));
    }
    assert_eq!(table.get(&key(2)), None);
}

#[test]
fn addresses_count_as_a_whole() {
    let (table, mut writer) = (small(), TableWriter::new());
    let parts = [
        ((1, 2), 3),
        ((0, 2), 3),
        ((1, 0), 3),
        ((1, 2), 0),
        ((1, 2), 4),
    ];
    let (first, others) = parts.split_first().unwrap();
    table.insert(
        &mut writer,
        &AddrKey::new(first.0, first.1),
        Some(1),
        table.epoch(),
    );
    for (addr, scope) in others {
        assert_eq!(
            table.get(&AddrKey::new(*addr, *scope)),
            None,
            "{addr:?} {scope}"
        );
    }
}

#[test]
fn a_slot_that_was_never_written_answers_nothing() {
    assert_eq!(small().get(&AddrKey::new((0, 0), 0)), None);
}

#[test]
fn an_event_ends_all_answers() {
    let (table, mut writer) = (small(), TableWriter::new());
    table.insert(&mut writer, &key(1), Some(1), table.epoch());
    table.insert(&mut writer, &key(2), None, table.epoch());
    table.flush();
    assert_eq!(table.get(&key(1)), None);
    assert_eq!(table.get(&key(2)), None);
    table.insert(&mut writer, &key(1), Some(2), table.epoch());
    assert_eq!(table.get(&key(1)), Some(Some(2)));
}

#[test]
fn an_answer_of_an_old_epoch_is_not_cached() {
    let (table, mut writer) = (small(), TableWriter::new());
    let asked = table.epoch();
    table.flush();
    table.insert(&mut writer, &key(1), Some(1), asked);
    assert_eq!(table.get(&key(1)), None);
    // An old answer does not replace a newer one, either.
    table.insert(&mut writer, &key(1), Some(2), table.epoch());
    table.insert(&mut writer, &key(1), Some(1), asked);
    assert_eq!(table.get(&key(1)), Some(Some(2)));
}

#[test]
fn stale_entries_are_replaced_before_valid_ones() {
    let (table, mut writer) = (
        AddrTable::new(Box::new([const { Set::new() }; 1])),
        TableWriter::new(),
    );
    let keys: Vec<_> = (1..=WAYS as u64).map(key).collect();
    for number in 100..200 {
        table.insert(&mut writer, &key(number), Some(1), table.epoch());
    }
    table.flush();
    // All slots are used, and none of them is valid.
    for key in &keys {
        table.insert(&mut writer, key, Some(2), table.epoch());
    }
    assert!(keys.iter().all(|key| table.get(key) == Some(Some(2))));
    // An address that has a slot keeps it.
    table.insert(&mut writer, &keys[0], Some(3), table.epoch());
    assert_eq!(table.get(&keys[0]), Some(Some(3)));
    assert!(keys[1..].iter().all(|key| table.get(key) == Some(Some(2))));
    // A new address replaces one slot, and the next one another.
    for number in 0..4 * WAYS as u64 {
        table.insert(&mut writer, &key(1000 + number), None, table.epoch());
        assert_eq!(table.get(&key(1000 + number)), Some(None));
        let newest = (0..=number).rev().take(WAYS);
        assert!(newest
            .clone()
            .all(|n| table.get(&key(1000 + n)) == Some(None)));
        let left = keys.iter().filter(|key| table.get(key).is_some());
        assert_eq!(left.count() + newest.count(), WAYS);
    }
}

/// Returns the correct answer in an epoch, which the threads below agree on.
fn answer_in(number: u64, time: u64) -> Answer {
    (number % 3 != 0).then_some((number * 1000 + time) as u32 & 0x7fff_ffff)
}

/// The answers change with time, which models the real state. The time advances first, then the
/// table is flushed. A lookup reads the epoch first. A reader that knows the time before and after
/// its lookup must get an answer of a time in between, or none.
#[test]
fn readers_never_see_a_wrong_answer() {
    const READERS: u64 = 2;
    let looks = if cfg!(miri) { 300 } else { 200_000 };
    let table = small();
    let writer = Mutex::new(TableWriter::new());
    let (time, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = || done.load(Ordering::Relaxed) == READERS;
    let keys = 3 * (SETS * WAYS) as u64;
    let write = |seed: u64| {
        for round in 0.. {
            if over() {
                break;
            }
            let number = (round * 7 + seed) % keys;
            let epoch = table.epoch();
            let answer = answer_in(number, time.load(Ordering::SeqCst));
            table.insert(&mut writer.lock().unwrap(), &key(number), answer, epoch);
        }
    };
    let read = |seed: u64| {
        for round in 0..looks {
            let number = (round * 5 + seed) % keys;
            let before = time.load(Ordering::SeqCst);
            let seen = table.get(&key(number));
            let after = time.load(Ordering::SeqCst);
            // The time advances before the flush, so the previous answer may still be seen.
            let mut possible = before.saturating_sub(1)..=after;
            if !seen.is_none_or(|seen| possible.any(|time| answer_in(number, time) == seen)) {
                return Err(format!("{number}: {seen:?} in {before}..={after}"));
            }
        }
        Ok(())
    };
    let results: Vec<_> = thread::scope(|scope| {
        let (write, read, done) = (&write, &read, &done);
        let readers: Vec<_> = (0..READERS)
            .map(|seed| {
                scope.spawn(move || write(seed));
                scope.spawn(move || {
                    let result = read(seed);
                    done.fetch_add(1, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        while !over() {
            time.fetch_add(1, Ordering::SeqCst);
            table.flush();
            (0..200).for_each(|_| std::hint::spin_loop());
        }
        readers.into_iter().map(|r| r.join().unwrap()).collect()
    });
    for result in results {
        assert_eq!(result, Ok(()));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64),
    Answer(Option<u32>),
    Flush,
}

/// Fewer steps under Miri, which is slow.
const STEPS: usize = if cfg!(miri) { 30 } else { 300 };

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40u64).prop_map(Step::Ask),
        4 => prop::option::of(0..1u32 << 31).prop_map(Step::Answer),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    /// The table may forget answers, but each answer was inserted since the last event.
    #[test]
    fn against_a_map(steps in prop::collection::vec(step(), 0..STEPS)) {
        let (table, mut writer) = (small(), TableWriter::new());
        let mut known = HashMap::new();
        let mut asked = Vec::new();
        for step in steps {
            match step {
                Step::Ask(number) => asked.push((number, table.epoch(), true)),
                Step::Answer(answer) => {
                    if let Some((number, epoch, current)) = asked.pop() {
                        table.insert(&mut writer, &key(number), answer, epoch);
                        if current {
                            known.insert(number, answer);
                            prop_assert_eq!(table.get(&key(number)), Some(answer));
                        }
                    }
                }
                Step::Flush => {
                    table.flush();
                    known.clear();
                    asked.iter_mut().for_each(|question| question.2 = false);
                }
            }
            for number in 0..40 {
                if let Some(answer) = table.get(&key(number)) {
                    prop_assert_eq!(known.get(&number), Some(&answer));
                }
            }
        }
    }
}
