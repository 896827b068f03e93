// SPDX-License-Identifier: GPL-2.0

//! Every pair of states of the two nodes, with every event on either side. The following events are
//! disturbed in every simple way. Then the network is calm, and the two nodes have to converge.

use super::looks::DELIVERY;
use super::tests::{seeds, SECOND};
use super::{Brain, Cm, Happening, Rng, Time, Weather, World, MS};
use crate::connect::EVENTS;
use crate::proto::connect::{Event, State, Timing};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Fault after the event.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    /// Loss of the next CM messages: one bit each, the lowest first.
    Lost(u32),
    /// Percentage of loss until the network is calm.
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

/// Maximum duration of the trouble.
const TROUBLE: Time = 500 * MS;

/// Number of samples of a pair of states, for each combination of queued messages.
const SAMPLES: u32 = 2;

impl World {
    pub(super) fn states(&self) -> [State; 2] {
        [0, 1].map(|node| self.nodes[node].state())
    }

    /// Feeds an event to a node that may not be due. The event's claim about the peer was true
    /// once, but the peer has forgotten it since.
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
            Event::Step
            | Event::Prepared
            | Event::Established
            | Event::Fault
            | Event::Rejected
            | Event::Moved
            | Event::Lost
            | Event::Idle => self.feed(node, event),
        }
    }

    fn forgotten_endpoint(&mut self, node: usize) -> u32 {
        // No existing endpoint has this number.
        self.name_endpoint(node, self.numbers)
    }
}

/// Returns the maximum time until two nodes agree. A message was lost just before the network
/// became calm, so one node waits until its timeout. The other one may have begun to wait only
/// then.
fn idle_timeouts() -> Time {
    let timing = Timing::default();
    u64::from(2 * timing.watchdog_ms + timing.backoff_max_ms) * MS
}

/// Maximum times that were seen.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Until both had nothing to do.
    rested: Time,
    /// Until the arrival of a message that was sent after that.
    delivered: Time,
    /// Until checks had found a lost link: with a waiting message, and without one.
    found_out: [Time; 2],
}

impl Worst {
    fn max(self, other: Self) -> Self {
        let of = |which: usize| self.found_out[which].max(other.found_out[which]);
        Worst {
            rested: self.rested.max(other.rested),
            delivered: self.delivered.max(other.delivered),
            found_out: [of(0), of(1)],
        }
    }
}

/// Tries one event with one trouble, from this moment on.
fn converge(world: &World, node: usize, event: Event, trouble: Trouble) -> Worst {
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
    let Some(rested) = world.settle(idle_timeouts(), World::is_idle) else {
        panic!("stuck in {:?}: {}", world.states(), place());
    };
    let mut worst = Worst {
        rested,
        ..Worst::default()
    };
    if !world.settled() {
        let waits = world.waits();
        // A peer that earlier checks found up has revealed that it runs this module.
        let known = |node: usize| {
            let this = &world.nodes[node];
            this.state() != State::Up || this.knows_its_peer()
        };
        for looked in [false, true] {
            if looked && !(0..2).all(known) {
                continue;
            }
            let Some(time) = world.clone().find_out(looked) else {
                panic!("{:?} for good: {}", world.states(), place());
            };
            let found_out = &mut worst.found_out[usize::from(!waits)];
            *found_out = time.max(*found_out);
        }
    }
    // Afterwards either node, or both, can send.
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
            worst.delivered = worst.delivered.max(world.now - start);
        }
    }
    worst
}

type Seen = BTreeMap<(String, [bool; 2]), u32>;

/// Runs a random simulation with faults. At each state pair not seen before, tries all events and
/// troubles.
fn explore(seed: u64, trace: bool, brains: [Brain; 2], seen: &mut Seen) -> Worst {
    let mut worst = Worst::default();
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
                        worst = worst.max(converge(&world, node, event, trouble));
                    }
                }
            }
        }
        if rng.percent(3) && world.now < 3 * SECOND {
            // An event that the faults do not cause by themselves.
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

fn explore_all(count: u64, brains: impl Fn(u64) -> [Brain; 2]) -> Worst {
    let found = RefCell::new(Seen::new());
    let worst = Cell::new(Worst::default());
    let runs = seeds(count, |seed, trace| {
        let one = explore(seed, trace, brains(seed), &mut found.borrow_mut());
        worst.set(one.max(worst.get()));
    });
    let worst = worst.get();
    println!(
        "at rest after at most {} ms, delivered after {} ms, found out after {:?} ms",
        worst.rested / MS,
        worst.delivered / MS,
        worst.found_out.map(|time| time / MS)
    );
    let found = found.into_inner();
    for a in State::ALL {
        for b in State::ALL {
            let pair = format!("{:?}", [a, b]);
            let seen = found.keys().any(|(states, _)| *states == pair);
            assert!(seen || runs < count || cfg!(miri), "{pair} did not come up");
        }
    }
    worst
}

#[test]
fn every_pair_of_states_and_events_converges() {
    let worst = explore_all(1000, |_| [Brain::rust(), Brain::rust()]);
    assert!(
        cfg!(miri) || std::env::var_os("RDS_SIM_SEED").is_some() || !worst.found_out.contains(&0),
        "nobody had to look"
    );
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
