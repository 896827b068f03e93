// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/path_choice.rs`.

use crate::proto::{mprds::PathCount, path_choice::PathTable};
use proptest::prelude::*;
use std::collections::BTreeMap;

const COUNTS: [PathCount; 4] = [
    PathCount::One,
    PathCount::Two,
    PathCount::Four,
    PathCount::Eight,
];

/// Returns the path of a port that has sent nothing.
fn fresh(secret: u16, port: u16, count: PathCount) -> u8 {
    PathTable::new(secret).choose(port, count, |_, _| panic!("nothing waits"))
}

#[test]
fn one_path_is_the_first() {
    let mut table = PathTable::new(77);
    for port in 0..=u16::MAX {
        assert_eq!(table.choose(port, PathCount::One, |_, _| true), 0);
    }
}

/// Ports that programs use, one after the other or in steps, are spread over all paths.
#[test]
fn ports_are_spread() {
    for count in COUNTS {
        for secret in [0, 1, 0x1234, 0xffff] {
            for step in [1, 2, 3, 8, 10, 16, 100] {
                let mut used = BTreeMap::new();
                for port in (0..64).map(|index| 4000 + index * step) {
                    *used.entry(fresh(secret, port, count)).or_insert(0) += 1;
                }
                let (paths, even) = (count.number(), 64 / count.number());
                assert_eq!(used.len(), usize::from(paths), "{secret} {step}");
                assert!(used.values().all(|ports| *ports <= 3 * even), "{used:?}");
            }
        }
    }
}

/// Other nodes cannot predict the paths.
#[test]
fn the_secret_matters() {
    let paths = |secret| -> Vec<u8> {
        (4000..4064)
            .map(|port| fresh(secret, port, PathCount::Eight))
            .collect()
    };
    assert_ne!(paths(1), paths(0x5a5a));
}

#[test]
fn a_port_keeps_its_path_while_something_waits() {
    let count = PathCount::Eight;
    let port = (4000..)
        .find(|port| fresh(5, *port, count) != 0)
        .expect("one port has another path");
    let mut table = PathTable::new(5);
    assert_eq!(table.choose(port, PathCount::One, |_, _| false), 0);
    table.note_queued(port, 10);
    let asked = |expected: bool| move |path, last| (assert_eq!((path, last), (0, 10)), expected).1;
    assert_eq!(table.choose(port, count, asked(false)), 0);
    assert_eq!(
        table.choose(port, count, asked(true)),
        fresh(5, port, count)
    );
    table.note_queued(port, 3);
    // Fewer paths: the same again.
    let old = fresh(5, port, count);
    let still = |path, last| (assert_eq!((path, last), (old, 3)), false).1;
    assert_eq!(table.choose(port, PathCount::One, still), old);
    // Its messages are on the first path now.
    table.use_first(20);
    let moved = |path, last| (assert_eq!((path, last), (0, 20)), true).1;
    assert_eq!(table.choose(port, count, moved), old);
}

/// Something that happens to the paths.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A port sends a message.
    Send(u16),
    /// The first message of a path arrives.
    Arrive(u8),
    /// The sender gets to know what has arrived on a path.
    Acknowledge(u8),
    /// The number of paths changes.
    Count(PathCount),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => (4000u16..4012).prop_map(Happening::Send),
        4 => (0u8..8).prop_map(Happening::Arrive),
        3 => (0u8..8).prop_map(Happening::Acknowledge),
        1 => (0usize..4).prop_map(|index| Happening::Count(COUNTS[index])),
    ]
}

/// A path: its messages under way, and numbers.
#[derive(Clone, Debug, Default)]
struct Path {
    /// Port and running number of each message.
    under_way: Vec<(u16, u32)>,
    arrived: u64,
    acked: u64,
}

proptest! {
    /// The messages of each port arrive in order, whatever path is faster.
    #[test]
    fn messages_of_a_port_stay_in_order(
        secret: u16,
        happenings in prop::collection::vec(happening(), 0..400),
    ) {
        let mut table = PathTable::new(secret);
        let mut count = PathCount::One;
        let mut paths = vec![Path::default(); 8];
        let mut sent = BTreeMap::<u16, u32>::new();
        let mut received = BTreeMap::<u16, u32>::new();
        for happening in happenings {
            match happening {
                Happening::Send(port) => {
                    let is_acked = |path: u8, last| paths[usize::from(path)].acked >= last;
                    let index = table.choose(port, count, is_acked);
                    let path = &mut paths[usize::from(index)];
                    let number = sent.entry(port).or_insert(0);
                    *number += 1;
                    path.under_way.push((port, *number));
                    table.note_queued(port, path.arrived + path.under_way.len() as u64);
                }
                Happening::Arrive(path) => {
                    let path = &mut paths[usize::from(path)];
                    if !path.under_way.is_empty() {
                        let (port, number) = path.under_way.remove(0);
                        path.arrived += 1;
                        let before = received.insert(port, number).unwrap_or(0);
                        prop_assert_eq!(number, before + 1, "port {}", port);
                    }
                }
                Happening::Acknowledge(path) => {
                    let path = &mut paths[usize::from(path)];
                    path.acked = path.arrived;
                }
                Happening::Count(now) => count = now,
            }
        }
    }

    /// A port that has nothing under way is on the path that all its messages would have.
    #[test]
    fn a_port_moves_as_soon_as_it_may(secret: u16, port: u16, index in 0usize..4) {
        let count = COUNTS[index];
        let mut table = PathTable::new(secret);
        table.choose(port, PathCount::One, |_, _| false);
        table.note_queued(port, 1);
        let path = table.choose(port, count, |_, _| true);
        prop_assert_eq!(path, fresh(secret, port, count));
        prop_assert!(count.has(path));
    }
}
