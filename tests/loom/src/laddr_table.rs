// SPDX-License-Identifier: GPL-2.0

//! Models of `cm/laddr/table.rs`: a reader and a concurrent writer. Single-threaded tests are in
//! `tests/host`.

use crate::{check, sync::atomic};
use loom::{sync::Arc, thread};
use table::*;

#[allow(dead_code)]
#[path = "../../../cm/laddr/table.rs"]
mod table;

/// Table with one set, which all keys share.
type Small = AddrTable<Box<[Set; 1]>, 1>;

fn small() -> Arc<Small> {
    let table = AddrTable::new(Box::new([const { Set::new() }; 1]));
    assert_eq!(table.get(&key(1)), None);
    Arc::new(table)
}

fn key(number: u64) -> AddrKey {
    AddrKey::new((0xfd09 << 48, number), 0)
}

/// A slot is reused for another address in the same epoch.
#[test]
fn no_address_has_the_answer_of_another() {
    check(|| {
        let (table, mut writer) = (small(), TableWriter::new());
        for number in 0..WAYS as u64 {
            table.insert(
                &mut writer,
                &key(number),
                Some(number as u32),
                table.epoch(),
            );
        }
        let reader = thread::spawn({
            let table = table.clone();
            // The first key that is evicted.
            move || table.get(&key(1))
        });
        table.insert(&mut writer, &key(100), None, table.epoch());
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(Some(1))), "{seen:?}");
        assert_eq!(table.get(&key(1)), None);
        assert_eq!(table.get(&key(100)), Some(None));
    });
}

#[test]
fn no_answer_outlives_its_epoch() {
    check(|| {
        let (table, mut writer) = (small(), TableWriter::new());
        table.insert(&mut writer, &key(1), Some(1), table.epoch());
        let first = table.epoch();
        let reader = thread::spawn({
            let table = table.clone();
            move || {
                let before = table.epoch();
                (before, table.get(&key(1)))
            }
        });
        table.flush();
        table.insert(&mut writer, &key(1), Some(2), table.epoch());
        let (before, seen) = reader.join().unwrap();
        assert!(matches!(seen, None | Some(Some(1 | 2))), "{seen:?}");
        assert!(before == first || seen != Some(Some(1)));
        assert_eq!(table.get(&key(1)), Some(Some(2)));
    });
}

/// A lookup of the new epoch sees the change that preceded the event.
#[test]
fn a_lookup_of_a_new_epoch_sees_the_change() {
    check(|| {
        let table = small();
        let world = Arc::new(atomic::Atomic::new(0u32));
        world.store(1, atomic::Relaxed);
        let event = thread::spawn({
            let (table, world) = (table.clone(), world.clone());
            move || {
                world.store(2, atomic::Relaxed);
                table.flush();
            }
        });
        let mut writer = TableWriter::new();
        let asked = table.epoch();
        let answer = world.load(atomic::Relaxed);
        table.insert(&mut writer, &key(1), Some(answer), asked);
        event.join().unwrap();
        let seen = table.get(&key(1));
        assert!(matches!(seen, None | Some(Some(2))), "{seen:?}");
    });
}
