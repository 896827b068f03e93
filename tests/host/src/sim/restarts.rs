// SPDX-License-Identifier: GPL-2.0

//! A node crashes amid traffic. Its peer recognises that, and takes it for a new one.

use super::node::Node;
use super::tests::{length, seeds, SECOND};
use super::{Brain, Happening, Rng, Weather, World, MS};
use std::cell::Cell;

/// Crashes and restarts the first of two nodes amid traffic. Returns the world at rest, and the
/// index of that node.
pub(super) fn crash_amid_traffic(
    seed: u64,
    trace: bool,
    [brain, other]: [Brain; 2],
    prepare: fn(&mut World),
) -> (World, usize) {
    let mut rng = Rng(!seed);
    let weather = Weather {
        loss: [0, 10][rng.below(2) as usize],
        cm_delay: 10 * MS,
        worker_delay: 10 * MS,
        calm_from: 10 * SECOND,
        fate: 0,
    };
    let crashed = usize::from(!rng.percent(50));
    let brains = match crashed {
        0 => [brain, other],
        _ => [other, brain],
    };
    let mut world = World::new(seed, weather, brains, trace);
    prepare(&mut world);
    let crash = 2 * SECOND + rng.below(SECOND);
    world.at(crash, Happening::Restart { node: crashed });
    for _ in 0..20 + rng.below(60) {
        let node = rng.below(2) as usize;
        let len = length(&mut rng);
        let time = rng.below(5 * SECOND);
        world.at(time, Happening::Queue { node, len });
        if rng.percent(50) {
            world.at(time + rng.below(500), Happening::Break { node });
        }
    }
    assert!(world.run_until(40 * SECOND), "it never comes to rest");
    for node in &world.nodes {
        assert!(node.drained());
    }
    (world, crashed)
}

/// Returns what has arrived without the messages that the crashed node had sent before.
pub(super) fn arrived_since_restart<'a>(crashed: &Node, other: &'a Node) -> &'a [(u32, u32)] {
    let old = std::iter::zip(&crashed.sent_before_restart, &other.delivered)
        .take_while(|(sent, arrived)| sent == arrived)
        .count();
    &other.delivered[old..]
}

/// Crashes one node in the middle. Later messages must arrive. Of earlier ones, none may arrive
/// twice in one life of its receiver, or out of order.
fn is_not_taken_for_its_old_self(seed: u64, trace: bool, other: Brain) -> u32 {
    let (world, crashed) = crash_amid_traffic(seed, trace, [Brain::rust(), other], |_| ());
    let (crashed, other) = (&world.nodes[crashed], &world.nodes[1 - crashed]);
    assert!(other.sent.ends_with(&crashed.delivered));
    assert!(crashed.delivered.len() >= other.due_since_restart);
    let old = other.delivered.len() - crashed.sent.len();
    assert!(crashed
        .sent_before_restart
        .starts_with(&other.delivered[..old]));
    assert_eq!(other.delivered[old..], crashed.sent);
    world.stale
}

#[test]
fn a_restarted_node_is_not_taken_for_its_old_self() {
    let stale = Cell::new(0);
    let runs = seeds(300, |seed, trace| {
        let found = is_not_taken_for_its_old_self(seed, trace, Brain::rust());
        stale.set(stale.get() + u64::from(found));
    });
    println!("{} stale connections in {runs} runs", stale.get());
    assert!(runs == 1 || stale.get() > runs / 10);
}

/// C RDS remembers the numbers of the last life, and drops all retransmissions before them.
#[test]
fn c_does_not_take_a_restarted_node_for_its_old_self() {
    seeds(300, |seed, trace| {
        is_not_taken_for_its_old_self(seed, trace, Brain::c());
    });
}

/// C RDS crashes in the middle, and does not reveal it. Its messages arrive at most once and in
/// order. The first messages of its new life are lost if only retransmissions arrive and nothing
/// shows that they are new.
#[test]
fn a_restarted_c_node_is_recognised_by_its_sequence_numbers() {
    let lost = Cell::new(0);
    let runs = seeds(300, |seed, trace| {
        let brains = [Brain::c(), Brain::rust()];
        let (world, crashed) = crash_amid_traffic(seed, trace, brains, |_| ());
        let (crashed, other) = (&world.nodes[crashed], &world.nodes[1 - crashed]);
        let arrived = arrived_since_restart(crashed, other);
        let mut sent = crashed.sent.iter();
        let in_order = arrived.iter().all(|one| sent.any(|it| it == one));
        assert!(in_order, "{:?} of {:?}", other.delivered, crashed.sent);
        lost.set(lost.get() + crashed.sent.len() - arrived.len());
    });
    println!("{} messages were lost in {runs} runs", lost.get());
    // Four times as many would be lost if all retransmissions were considered old.
    assert!(lost.get() < 7);
}
