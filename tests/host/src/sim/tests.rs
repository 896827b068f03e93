// SPDX-License-Identifier: GPL-2.0

//! Requirements on two nodes: delivery, order, convergence and times.

use super::{Brain, Happening, Node, Rng, Time, Weather, World, MS};
use crate::proto::connect::{Event, State};
use crate::proto::wire::MAX_MESSAGE;
use std::cell::Cell;

pub(super) const SECOND: Time = 1000 * MS;

/// Runs `check` with `count` seeds, or with the one from the environment. Returns how many.
pub(super) fn seeds(count: u64, check: impl Fn(u64, bool)) -> u64 {
    match std::env::var("RDS_SIM_SEED") {
        Ok(seed) => {
            check(seed.parse().expect("RDS_SIM_SEED is a number"), true);
            1
        }
        Err(_) => {
            let count = if cfg!(miri) { 1 } else { count };
            for seed in 0..count {
                let guard = Report(seed);
                check(seed, false);
                std::mem::forget(guard);
            }
            count
        }
    }
}

/// Prints the seed if the check panics.
struct Report(u64);

impl Drop for Report {
    fn drop(&mut self) {
        eprintln!("failed with RDS_SIM_SEED={}", self.0);
    }
}

/// Each failure prints what is needed to reproduce it.
#[test]
#[cfg_attr(miri, ignore = "no processes there")]
fn a_failure_prints_its_seed() {
    const FAIL: &str = "RDS_SIM_FAIL";
    if std::env::var_os(FAIL).is_some() {
        seeds(10, |seed, _| assert_ne!(seed, 7));
        return;
    }
    let test = "sim::tests::a_failure_prints_its_seed";
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env_remove("RDS_SIM_SEED")
        .env(FAIL, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(told.contains("failed with RDS_SIM_SEED=7\n"), "{told}");
    assert!(!done.status.success());
}

/// Returns a length that is likely to lie next to a fragment boundary.
pub(super) fn length(rng: &mut Rng) -> u32 {
    let near = 4096 * rng.below(4) as u32;
    match rng.below(8) {
        0 => 0,
        1 => rng.below(100) as u32,
        2 => rng.below(64 << 10) as u32,
        3 if rng.percent(5) => MAX_MESSAGE - rng.below(2) as u32,
        4 | 5 => near,
        6 => near + 1,
        _ => near.saturating_sub(1),
    }
}

pub(super) fn assert_delivered(world: &World) {
    for node in 0..2 {
        assert_eq!(world.nodes[1 - node].delivered, world.nodes[node].sent);
        assert!(world.nodes[node].drained());
    }
}

/// Runs messages, losses and breaks for ten seconds; then all messages must arrive. Returns how
/// many messages arrived a second time.
fn storm(seed: u64, trace: bool, brains: [Brain; 2]) -> u32 {
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: [0, 2, 10, 40][rng.below(4) as usize],
        cm_delay: [MS, 10 * MS, 100 * MS][rng.below(3) as usize],
        worker_delay: [0, 30 * MS][rng.below(2) as usize],
        calm_from: 10 * SECOND,
        fate: 0,
    };
    let mut world = World::new(seed, weather, brains, trace);
    for _ in 0..rng.below(150) {
        let node = rng.below(2) as usize;
        let len = length(&mut rng);
        let time = rng.below(10 * SECOND);
        world.at(time, Happening::Queue { node, len });
        if rng.percent(10) {
            world.at(time, Happening::Cancel { node });
        }
        if rng.percent(20) {
            // Within the frames on the wire.
            world.at(time + rng.below(500), Happening::Break { node });
        }
        if rng.percent(20) {
            // Before it, or while it is in transit.
            let node = rng.below(2) as usize;
            world.at(time + rng.below(500), Happening::Idle { node });
        }
    }
    for _ in 0..rng.below(30) {
        let node = rng.below(2) as usize;
        world.at(rng.below(10 * SECOND), Happening::Break { node });
    }
    assert!(world.run_until(40 * SECOND), "it never comes to rest");
    assert_delivered(&world);
    for node in &world.nodes {
        assert!(node.times_up > 0 || node.sent.is_empty());
    }
    let duplicates = world.nodes.iter().map(|node| node.duplicates).sum();
    assert!(world.is_idle(), "{:?}", world.states());
    assert!(world.find_out(false).is_some(), "one is up on nothing");
    duplicates
}

/// Both nodes connect at the same time, on a network that loses nothing.
#[test]
fn nodes_that_connect_to_each_other_come_up_once() {
    seeds(3000, |seed, trace| {
        let mut rng = Rng(!seed);
        let weather = Weather {
            loss: 0,
            cm_delay: [MS, 10 * MS, 100 * MS][rng.below(3) as usize],
            worker_delay: rng.below(2) * MS,
            calm_from: 0,
            fate: 0,
        };
        let mut world = World::new(seed, weather, [Brain::rust(), Brain::rust()], trace);
        // No number is reused. The CM itself would end a connection that shares its number with an
        // abandoned attempt.
        world.numbers = u32::MAX;
        for node in 0..2 {
            world.at(0, Happening::Queue { node, len: 64 });
        }
        assert!(world.run_until(40 * SECOND), "it never comes to rest");
        assert_delivered(&world);
        assert_eq!(world.nodes.each_ref().map(|node| node.times_up), [1, 1]);
    });
}

#[test]
fn everything_arrives_once_and_in_order() {
    let duplicates = Cell::new(0);
    let runs = seeds(400, |seed, trace| {
        let found = storm(seed, trace, [Brain::rust(), Brain::rust()]);
        duplicates.set(duplicates.get() + found);
    });
    assert!(
        duplicates.get() > 0 || runs == 1,
        "the storms were too mild"
    );
}

#[test]
fn everything_arrives_with_c_on_the_other_side() {
    seeds(200, |seed, trace| {
        let brains = if seed % 2 == 0 {
            [Brain::rust(), Brain::c()]
        } else {
            [Brain::c(), Brain::rust()]
        };
        storm(seed, trace, brains);
    });
}

/// Sends messages with idle times between them. Then both nodes close the connection, and one or
/// both forget it as soon as they may.
fn idle_times(seed: u64, trace: bool, brains: [Brain; 2]) -> Idle {
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: [0, 0, 10][rng.below(3) as usize],
        cm_delay: [MS, 20 * MS][rng.below(2) as usize],
        worker_delay: 5 * MS,
        calm_from: 120 * SECOND,
        fate: 0,
    };
    let ours = brains.iter().all(|brain| matches!(brain, Brain::Rust(_)));
    let mut world = World::new(seed, weather, brains, trace);
    world.looks_until = 140 * SECOND;
    let short_of_room = 1 + rng.below(3);
    for node in 0..2 {
        world.nodes[node].has_room = ours && (short_of_room & (1 << node)) == 0;
        if world.nodes[node].is_ours() {
            world.at(rng.below(SECOND), Happening::Look { node });
        }
    }
    let mut time = 0;
    while time < 110 * SECOND {
        time += [rng.below(SECOND), rng.below(8 * SECOND)][rng.below(2) as usize];
        let node = rng.below(2) as usize;
        let len = length(&mut rng);
        world.at(time, Happening::Queue { node, len });
        if rng.percent(20) {
            // Also before the first acknowledgement.
            let within = [10 * MS, 10 * MS, 4 * SECOND][rng.below(3) as usize];
            world.at(time + rng.below(within), Happening::Break { node });
        }
    }
    assert!(world.run_until(200 * SECOND), "it never comes to rest");
    assert_delivered(&world);
    for node in &world.nodes {
        // C RDS reconnects at once.
        assert!(!ours || (node.state(), node.endpoint) == (State::Down, None));
    }
    let sum = |count: fn(&Node) -> u32| world.nodes.iter().map(count).sum();
    Idle {
        up: sum(|node| node.times_up),
        forgotten: sum(|node| node.times_forgotten),
        kept: sum(|node| node.positions_kept),
    }
}

/// Number of times that the connection came up, was forgotten, and was forgotten except the peer's
/// position.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    up: u32,
    forgotten: u32,
    kept: u32,
}

impl Idle {
    fn add(self, other: Self) -> Self {
        Idle {
            up: self.up + other.up,
            forgotten: self.forgotten + other.forgotten,
            kept: self.kept + other.kept,
        }
    }
}

#[test]
fn idle_connections_are_closed_and_forgotten_and_nothing_is_lost() {
    let total = Cell::new(Idle::default());
    let runs = seeds(300, |seed, trace| {
        let found = idle_times(seed, trace, [Brain::rust(), Brain::rust()]);
        total.set(total.get().add(found));
    });
    let total = total.get();
    println!("{total:?} in {runs} runs");
    assert!(
        runs == 1
            || (u64::from(total.up) > 10 * runs
                && u64::from(total.forgotten) > 5 * runs
                && u64::from(total.kept) > runs / 10)
    );
}

/// C RDS knows no generations, and reconnects at once.
#[test]
fn idle_connections_of_c_are_forgotten_and_nothing_is_lost() {
    let total = Cell::new(Idle::default());
    let runs = seeds(300, |seed, trace| {
        for brains in [[Brain::rust(), Brain::c()], [Brain::c(), Brain::rust()]] {
            total.set(total.get().add(idle_times(seed, trace, brains)));
        }
    });
    let total = total.get();
    println!("{total:?} in {runs} runs, both ways");
    assert!(
        runs == 1 || (u64::from(total.forgotten) > 5 * runs && u64::from(total.kept) > runs / 10)
    );
}

/// Both nodes send at about the same time, on a network that loses nothing. Returns the time when
/// the last message has arrived.
fn simultaneous(seed: u64, trace: bool, brains: [Brain; 2]) -> Time {
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: 0,
        cm_delay: 5 * MS,
        worker_delay: 0,
        calm_from: SECOND,
        fate: 0,
    };
    let mut world = World::new(seed, weather, brains, trace);
    for node in 0..2 {
        world.at(rng.below(15 * MS), Happening::Queue { node, len: 5000 });
    }
    let connected = finish(&mut world, 2);

    // The same once more after the connection has broken.
    let start = 900 * MS;
    assert!(connected < start);
    world.at(start, Happening::Break { node: 0 });
    for node in 0..2 {
        let len = 5000;
        world.at(
            start + 1 + rng.below(60 * MS),
            Happening::Queue { node, len },
        );
    }
    let again = finish(&mut world, 4) - start;
    assert!(world.run_until(60 * SECOND));
    assert_delivered(&world);
    connected.max(again)
}

/// Runs until `messages` have arrived in all. Returns the time of that.
fn finish(world: &mut World, messages: usize) -> Time {
    let mut time = 0;
    while world
        .nodes
        .iter()
        .map(|node| node.delivered.len())
        .sum::<usize>()
        < messages
    {
        time = world.now + MS;
        assert!(time < 60 * SECOND, "it does not converge");
        world.run_until(time);
        world.now = time;
    }
    time
}

#[test]
fn simultaneous_connects_converge() {
    seeds(1000, |seed, trace| {
        let time = simultaneous(seed, trace, [Brain::rust(), Brain::rust()]);
        assert!(time < 500 * MS, "{time} us");
    });
}

#[test]
fn simultaneous_connects_converge_with_c_on_the_other_side() {
    seeds(1000, |seed, trace| {
        for brains in [[Brain::rust(), Brain::c()], [Brain::c(), Brain::rust()]] {
            let time = simultaneous(seed, trace, brains);
            assert!(time < 500 * MS, "{time} us");
        }
    });
}

/// With many connections, a request may wait for its worker until the peer has accepted this node's
/// request and withdrawn its own. Then it must not replace the new connection.
#[test]
fn a_request_that_was_withdrawn_is_not_taken() {
    let twice = Cell::new(0);
    let runs = seeds(500, |seed, trace| {
        let mut rng = Rng(!seed);
        let weather = Weather {
            loss: 0,
            cm_delay: MS,
            worker_delay: 50 * MS,
            calm_from: 0,
            fate: 0,
        };
        let mut world = World::new(seed, weather, [Brain::rust(), Brain::rust()], trace);
        for node in 0..2 {
            world.at(rng.below(2 * MS), Happening::Queue { node, len: 5000 });
        }
        assert!(world.run_until(60 * SECOND));
        assert_delivered(&world);
        twice.set(twice.get() + u64::from(world.nodes.iter().any(|node| node.times_up > 1)));
    });
    println!("connected more than once in {} of {runs} runs", twice.get());
    // The worker may handle it while the withdrawal is in transit.
    assert!(twice.get() <= runs / 20);
}

/// Parameters for a queue pair error after everything was delivered long ago.
struct QueuePairError {
    brains: [Brain; 2],
    /// Time that the connection has lasted.
    before: Time,
    cm_delay: Time,
    /// Number of queue pair numbers of a node, if not the default.
    numbers: Option<u32>,
}

/// Results after the error, by node.
struct Aftermath {
    /// Time until the last message arrived, after the failure or after it was sent, whichever is
    /// later.
    late: Time,
    times_up: [u32; 2],
    times_asked: [u32; 2],
}

/// Fails the queue pair. Afterwards one of the nodes, or both, send messages.
fn queue_pair_error(seed: u64, trace: bool, how: QueuePairError) -> Aftermath {
    let QueuePairError {
        brains,
        before,
        cm_delay,
        numbers,
    } = how;
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: 0,
        cm_delay,
        worker_delay: 0,
        calm_from: 60 * SECOND,
        fate: 0,
    };
    let mut world = World::new(seed, weather, brains, trace);
    world.numbers = numbers.unwrap_or(world.numbers);
    // The last sender does not know whether its message has arrived, and wants the connection.
    let node = rng.below(2) as usize;
    world.happen(Happening::Queue { node, len: 100 });
    let mut first = finish(&mut world, 1);
    if rng.percent(50) {
        let node = 1 - node;
        world.happen(Happening::Queue { node, len: 100 });
        first = finish(&mut world, 2);
    }
    let failure = first + before;
    world.run_until(failure);
    world.now = failure;

    let asked = world.nodes.each_ref().map(|node| node.times_asked);
    let up = world.nodes.each_ref().map(|node| node.times_up);
    let id = world.nodes[rng.below(2) as usize].endpoint.unwrap();
    let event = Event::Lost;
    world.happen(Happening::Endpoint { id, event });
    let senders = 1 + rng.below(3);
    let mut last = failure;
    for node in (0..2).filter(|node| senders & (1 << node) != 0) {
        let time = failure
            + [0, rng.below(300), rng.below(20 * MS), rng.below(SECOND)][rng.below(4) as usize];
        world.at(
            time,
            Happening::Queue {
                node: node as usize,
                len: 5000,
            },
        );
        last = last.max(time);
    }
    let already = world.nodes.iter().map(|node| node.delivered.len());
    let already = already.sum::<usize>();
    let done = finish(&mut world, already + senders.count_ones() as usize);
    assert!(world.run_until(done + 60 * SECOND));
    assert_delivered(&world);
    let [first, second] = &world.nodes;
    Aftermath {
        late: done.saturating_sub(last),
        times_up: [first.times_up - up[0], second.times_up - up[1]],
        times_asked: [first.times_asked - asked[0], second.times_asked - asked[1]],
    }
}

#[test]
fn traffic_goes_on_soon_after_a_queue_pair_error() {
    let worst = Cell::new([0; 3]);
    seeds(4000, |seed, trace| {
        let mut found = worst.get();
        for (kind, found) in found.iter_mut().enumerate() {
            let brains = match kind {
                0 => [Brain::rust(), Brain::rust()],
                1 => [Brain::rust(), Brain::c()],
                _ => [Brain::c(), Brain::rust()],
            };
            // Short enough that the connection was not proven, and long enough.
            let before = [20 * MS, 500 * MS, 5 * SECOND][seed as usize % 3];
            let how = QueuePairError {
                brains,
                before,
                cm_delay: 5 * MS,
                numbers: None,
            };
            let time = queue_pair_error(seed, trace, how).late;
            assert!(time < 500 * MS, "{time} us");
            *found = time.max(*found);
        }
        worst.set(found);
    });
    println!("at most {:?} ms", worst.get().map(|time| time / MS));
}

/// A node may stop waiting before the other's request arrives. Then both connect, and one attempt
/// fails. But no connection is established in vain.
#[test]
fn a_proven_connection_comes_back_once() {
    let crossed = Cell::new([0_u32; 2]);
    seeds(3000, |seed, trace| {
        let slow = seed % 2 == 1;
        let how = QueuePairError {
            brains: [Brain::rust(), Brain::rust()],
            before: 5 * SECOND,
            cm_delay: if slow { 300 * MS } else { 5 * MS },
            // No number is reused. The CM itself would end a connection that shares its number with
            // an abandoned attempt.
            numbers: Some(u32::MAX),
        };
        let after = queue_pair_error(seed, trace, how);
        assert_eq!(after.times_up, [1, 1]);
        let mut seen = crossed.get();
        seen[usize::from(slow)] += u32::from(after.times_asked.iter().sum::<u32>() > 1);
        crossed.set(seen);
    });
    println!("{:?} with more than one request", crossed.get());
}
