// SPDX-License-Identifier: GPL-2.0

//! Every state of one node beside every state of the other, and every event on either side. What
//! follows is disturbed in every simple way; then the network is calm, and the two have to find
//! together.

use super::tests::{seeds, SECOND};
use super::{Brain, Cm, Happening, Rng, Time, Weather, World, MS};
use crate::connect::EVENTS;
use crate::proto::connect::{Event, State, Timing};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What goes wrong after the event.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    /// These of the CM messages that follow are lost, the first one in the lowest bit.
    Lost(u32),
    /// As much loss, in percent, until it is calm.
    Storm(u64),
}

const TROUBLES: [Trouble; 10] = [
    Trouble::Nothing,
    Trouble::Lost(0b1),
    Trouble::Lost(0b10),
    Trouble::Lost(0b100),
    Trouble::Lost(0b1000),
    Trouble::Lost(0b11),
    Trouble::Lost(0b101),
    Trouble::Lost(0b1111),
    Trouble::Storm(20),
    Trouble::Storm(60),
];

/// How long the trouble may last.
const TROUBLE: Time = 500 * MS;

/// How often a pair of states is looked at, for each of what the two have to send.
const SAMPLES: u32 = 2;

impl World {
    fn states(&self) -> [State; 2] {
        [0, 1].map(|node| self.nodes[node].state())
    }

    /// Lets something happen to a node that may not be due. Whatever the event says about the
    /// peer was true once: the peer has forgotten it since.
    fn inject(&mut self, node: usize, event: Event) {
        let state = self.nodes[node].state();
        match event {
            Event::Wanted => self.happen(Happening::Queue { node, len: 100 }),
            Event::Request => {
                let from = self.forgotten_endpoint(1 - node);
                self.receive_cm(node, Cm::Request { from });
            }
            Event::Established if state == State::Connecting => {
                let gone = self.forgotten_endpoint(1 - node);
                self.nodes[node].peer_endpoint = Some(gone);
                self.feed(node, event);
            }
            Event::Timer => {
                // A timer runs in these states only.
                if self.nodes[node].state() != State::Down {
                    self.nodes[node].timer += 1;
                    self.feed(node, event);
                }
            }
            Event::Stop => {
                self.feed(node, event);
                assert_eq!(self.nodes[node].state(), State::Down);
                assert_eq!(self.nodes[node].endpoint, None);
                // The module is loaded again.
                self.happen(Happening::Restart { node });
            }
            Event::AddrResolved
            | Event::RouteResolved
            | Event::Established
            | Event::Rejected
            | Event::Moved
            | Event::Lost
            | Event::Idle => self.feed(node, event),
        }
    }

    fn forgotten_endpoint(&mut self, node: usize) -> u32 {
        // No endpoint that is there has this number.
        self.name_endpoint(node, self.numbers)
    }

    /// Whether the two are at rest and agree about it.
    fn settled(&self) -> bool {
        let [a, b] = &self.nodes;
        let linked =
            a.endpoint.is_some() && a.peer_endpoint == b.endpoint && b.peer_endpoint == a.endpoint;
        match self.states() {
            [State::Up, State::Up] => linked && a.drained() && b.drained(),
            [State::Down, State::Down] => !a.pending() && !b.pending(),
            // The other one has told, but that was lost. Whoever sends first notices.
            [State::Up, State::Down] => a.drained() && !b.pending(),
            [State::Down, State::Up] => b.drained() && !a.pending(),
            _ => false,
        }
    }

    /// How long a message may take from here on. A node that does not know that its connection broke before
    /// it was proven backs off when it notices.
    fn allowance(&self) -> Time {
        let unaware = |node: usize| {
            let (this, other) = (&self.nodes[node], &self.nodes[1 - node]);
            let broken = this
                .endpoint
                .is_some_and(|id| self.links.get(&id).is_some_and(|link| link.1));
            this.state() == State::Up
                && (broken || this.peer_endpoint != other.endpoint)
                && self.now < this.up_since + SECOND
        };
        if (0..2).any(unaware) {
            DELIVERY + u64::from(Timing::default().backoff_max_ms) * MS
        } else {
            DELIVERY
        }
    }

    /// Runs until the two have settled, at the most for a while; returns how long that took.
    fn settle(&mut self, limit: Time) -> Option<Time> {
        let start = self.now;
        while !self.settled() {
            if self.now >= start + limit {
                return None;
            }
            self.step(start + limit);
        }
        Some(self.now - start)
    }

    /// One happening, or none until `end`.
    fn step(&mut self, end: Time) {
        match self.agenda.peek() {
            Some(std::cmp::Reverse((time, _, _))) if *time <= end => {
                self.run_one();
            }
            _ => self.now = end,
        }
    }
}

/// How long two nodes may take until they agree: a message was lost just before it became calm, so
/// one of them waits for an answer until its time is over; the other one may have begun to wait
/// for it only then.
fn patience() -> Time {
    let timing = Timing::default();
    u64::from(2 * timing.watchdog_ms + timing.backoff_max_ms) * MS
}

/// How long a message takes at the most when the two agree and the network is calm.
const DELIVERY: Time = 500 * MS;

/// Tries one event with one trouble, from this moment on. Returns how long it took to settle, and
/// then to deliver.
fn converge(world: &World, node: usize, event: Event, trouble: Trouble) -> (Time, Time) {
    let place = || format!("{:?}, {event:?} on {node}, {trouble:?}", world.states());
    let mut world = world.clone();
    if world.trace {
        eprintln!("---- {}", place());
    }
    world.weather = Weather {
        loss: 0,
        cm_delay: 2 * MS,
        worker_delay: 2 * MS,
        calm_from: world.now + TROUBLE,
        fate: 0,
    };
    match trouble {
        Trouble::Nothing => (),
        Trouble::Lost(fate) => world.weather.fate = fate,
        Trouble::Storm(loss) => world.weather.loss = loss,
    }
    world.inject(node, event);
    world.run_until(world.weather.calm_from);
    world.now = world.weather.calm_from;
    world.weather.fate = 0;
    let Some(settled) = world.settle(patience()) else {
        panic!("stuck in {:?}: {}", world.states(), place());
    };
    let mut delivered = 0;
    // Then either of them, or both, can send.
    for senders in [0b01, 0b10, 0b11] {
        let mut world = world.clone();
        let before = [0, 1].map(|node| world.nodes[node].delivered.len());
        for node in (0..2).filter(|node| senders & (1 << node) != 0) {
            world.happen(Happening::Queue { node, len: 5000 });
        }
        let start = world.now;
        let end = start + world.allowance();
        let arrived = |world: &World| {
            (0..2).all(|node| {
                let due = usize::from(senders & (1 << node) != 0);
                world.nodes[1 - node].delivered.len() >= before[1 - node] + due
            })
        };
        while !arrived(&world) {
            assert!(
                world.now < end,
                "{senders:b} cannot send in {:?} after {}",
                world.states(),
                place()
            );
            world.step(end);
        }
        if end == start + DELIVERY {
            delivered = delivered.max(world.now - start);
        }
    }
    (settled, delivered)
}

type Seen = BTreeMap<(String, [bool; 2]), u32>;

/// Walks through a stormy story; at each moment that is new, tries what may come.
fn explore(seed: u64, trace: bool, brains: [Brain; 2], seen: &mut Seen) -> (Time, Time) {
    let mut worst = (0, 0);
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: [0, 10, 40][rng.below(3) as usize],
        cm_delay: [MS, 20 * MS][rng.below(2) as usize],
        worker_delay: 0,
        calm_from: 3 * SECOND,
        fate: 0,
    };
    let mut world = World::new(seed, weather, brains, trace);
    for _ in 0..rng.below(12) {
        let node = rng.below(2) as usize;
        let len = rng.below(9000) as u32;
        let time = rng.below(3 * SECOND);
        world.at(time, Happening::Queue { node, len });
        if rng.percent(30) {
            world.at(time, Happening::Cancel { node });
        }
        world.at(rng.below(3 * SECOND), Happening::Break { node });
    }
    while world.now < 4 * SECOND {
        let states = world.states();
        let pending = [0, 1].map(|node| world.nodes[node].pending());
        let count = seen.entry((format!("{states:?}"), pending)).or_default();
        if *count < SAMPLES {
            *count += 1;
            for node in 0..2 {
                for event in EVENTS {
                    if event == Event::Stop && !world.nodes[node].is_ours() {
                        continue;
                    }
                    for trouble in TROUBLES {
                        let (settled, delivered) = converge(&world, node, event, trouble);
                        worst = (worst.0.max(settled), worst.1.max(delivered));
                    }
                }
            }
        }
        if rng.percent(3) && world.now < 3 * SECOND {
            // Something that the storm does not bring forth.
            let (node, event) = (
                rng.below(2) as usize,
                EVENTS[rng.below(EVENTS.len() as u64) as usize],
            );
            if event != Event::Stop || world.nodes[node].is_ours() {
                world.inject(node, event);
            }
        }
        world.step(4 * SECOND);
    }
    worst
}

fn explore_all(count: u64, brains: impl Fn(u64) -> [Brain; 2]) {
    let found = RefCell::new(Seen::new());
    let worst = Cell::new((0, 0));
    let runs = seeds(count, |seed, trace| {
        let (settled, delivered) = explore(seed, trace, brains(seed), &mut found.borrow_mut());
        let (most, longest) = worst.get();
        worst.set((most.max(settled), longest.max(delivered)));
    });
    let (settled, delivered) = worst.get();
    println!(
        "settled after {} ms at the most, delivered after {} ms",
        settled / MS,
        delivered / MS
    );
    let found = found.into_inner();
    for a in State::ALL {
        for b in State::ALL {
            let pair = format!("{:?}", [a, b]);
            let seen = found.keys().any(|(states, _)| *states == pair);
            assert!(seen || runs < count || cfg!(miri), "{pair} did not come up");
        }
    }
}

#[test]
fn every_pair_of_states_and_events_converges() {
    explore_all(1000, |_| [Brain::rust(), Brain::rust()]);
}

#[test]
fn every_pair_of_states_and_events_converges_with_c() {
    explore_all(1000, |seed| {
        if seed % 2 == 0 {
            [Brain::rust(), Brain::c()]
        } else {
            [Brain::c(), Brain::rust()]
        }
    });
}
