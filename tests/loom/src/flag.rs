// SPDX-License-Identifier: GPL-2.0

//! Models of `conn/flag.rs`: events for a connection's worker.

use crate::{
    check,
    sync::atomic::{Atomic, Relaxed},
    work::Work,
};
use flag::Flag;
use loom::{sync::Arc, thread};

#[path = "../../../conn/flag.rs"]
mod flag;

struct Connection {
    wanted: Flag,
    reset: Flag,
    /// Work that each thread did before it set its flag.
    done: [Atomic<bool>; 2],
    work: Work,
}

impl Connection {
    fn new() -> Arc<Self> {
        let connection = Self {
            wanted: Flag::new(),
            reset: Flag::new(),
            done: [const { Atomic::new(false) }; 2],
            work: Work::new(),
        };
        assert!(!connection.wanted.take() && !connection.reset.take());
        assert_eq!(connection.done(), [false; 2]);
        Arc::new(connection)
    }

    fn raise(&self, flag: &Flag, by: usize) {
        self.done[by].store(true, Relaxed);
        flag.raise();
        self.work.enqueue();
    }

    fn done(&self) -> [bool; 2] {
        [0, 1].map(|by| self.done[by].load(Relaxed))
    }
}

/// A pending work item is not queued again, so the worker that took the flag must see both changes.
#[test]
fn an_event_that_comes_twice_is_seen_after_both() {
    check(|| {
        let connection = Connection::new();
        let others = [0, 1].map(|by| {
            let connection = connection.clone();
            thread::spawn(move || connection.raise(&connection.wanted, by))
        });
        let mut seen = [false; 2];
        while seen != [true; 2] {
            connection.work.next();
            while connection.wanted.take() {
                seen = connection.done();
            }
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn each_of_two_events_is_seen() {
    check(|| {
        let connection = Connection::new();
        let others = [0, 1].map(|by| {
            let connection = connection.clone();
            thread::spawn(move || {
                let flag = [&connection.wanted, &connection.reset][by];
                connection.raise(flag, by);
            })
        });
        let mut seen = [false; 2];
        while seen != [true; 2] {
            connection.work.next();
            loop {
                let by = if connection.reset.take() {
                    1
                } else if connection.wanted.take() {
                    0
                } else {
                    break;
                };
                assert!(connection.done()[by]);
                assert!(!seen[by], "it was set once");
                seen[by] = true;
            }
        }
        for other in others {
            other.join().unwrap();
        }
    });
}
