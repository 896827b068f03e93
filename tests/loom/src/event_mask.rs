// SPDX-License-Identifier: GPL-2.0

//! Models of `conn/event_mask.rs`: events for the work items of a connection.

use crate::{
    check, check_few,
    sync::atomic::{Atomic, Relaxed},
    work::Work,
};
use event_mask::EventMask;
use loom::{sync::Arc, thread};

#[path = "../../../conn/event_mask.rs"]
mod event_mask;

const WANTED: u32 = 1;
const RESET: u32 = 2;
/// Set for good.
const STOP: u32 = 4;

struct Connection {
    events: EventMask,
    /// Work that each thread did before it set its event.
    done: [Atomic<bool>; 2],
    worker: Work,
    sweep: Work,
}

impl Connection {
    fn new() -> Arc<Self> {
        let connection = Self {
            events: EventMask::new(),
            done: [const { Atomic::new(false) }; 2],
            worker: Work::new(),
            sweep: Work::new(),
        };
        assert!(!connection.events.take(WANTED | RESET));
        assert_eq!(connection.done(), [false; 2]);
        Arc::new(connection)
    }

    fn report(&self, events: u32, by: usize, to: &Work) {
        self.done[by].store(true, Relaxed);
        self.events.set(events);
        to.enqueue();
    }

    fn done(&self) -> [bool; 2] {
        [0, 1].map(|by| self.done[by].load(Relaxed))
    }
}

/// A pending work item is not queued again, so the worker that took the event must see both
/// changes.
#[test]
fn an_event_that_comes_twice_is_seen_after_both() {
    check(|| {
        let connection = Connection::new();
        let others = [0, 1].map(|by| {
            let connection = connection.clone();
            thread::spawn(move || connection.report(WANTED, by, &connection.worker))
        });
        let mut seen = [false; 2];
        while seen != [true; 2] {
            connection.worker.next();
            while connection.events.take(WANTED) {
                seen = connection.done();
            }
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn each_of_two_events_is_seen_once() {
    check(|| {
        let connection = Connection::new();
        let others = [WANTED, RESET].map(|event| {
            let connection = connection.clone();
            let by = usize::from(event == RESET);
            thread::spawn(move || connection.report(event, by, &connection.worker))
        });
        let mut seen = [false; 2];
        while seen != [true; 2] {
            connection.worker.next();
            loop {
                let by = if connection.events.take(RESET) {
                    1
                } else if connection.events.take(WANTED) {
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
        assert!(!connection.events.has(WANTED | RESET));
    });
}

/// A work item that takes an event leaves those of the other one.
#[test]
fn two_work_items_share_a_mask() {
    check_few(2, || {
        let connection = Connection::new();
        let reporter = {
            let connection = connection.clone();
            thread::spawn(move || {
                connection.report(WANTED, 0, &connection.worker);
                connection.report(RESET, 1, &connection.sweep);
            })
        };
        let sweep = {
            let connection = connection.clone();
            thread::spawn(move || {
                connection.sweep.next();
                assert!(connection.events.take(RESET));
                assert!(connection.done()[1]);
            })
        };
        connection.worker.next();
        assert!(connection.events.take(WANTED));
        assert!(connection.done()[0]);
        for other in [reporter, sweep] {
            other.join().unwrap();
        }
        assert!(!connection.events.has(WANTED | RESET));
    });
}

/// The worker takes an event while another context sets one that stays.
#[test]
fn an_event_that_stays_is_not_lost() {
    check(|| {
        let connection = Connection::new();
        connection.events.set(WANTED);
        let other = {
            let connection = connection.clone();
            thread::spawn(move || connection.report(STOP | RESET, 1, &connection.worker))
        };
        assert!(connection.events.take(WANTED));
        connection.worker.next();
        assert!(connection.events.has(STOP));
        assert!(connection.events.take(RESET) && connection.events.has(STOP));
        assert!(connection.done()[1]);
        other.join().unwrap();
    });
}
