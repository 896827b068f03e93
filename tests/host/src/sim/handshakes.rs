// SPDX-License-Identifier: GPL-2.0

//! Handshakes about paths, as nodes over TCP have them: C RDS offers eight paths, this module one.

use super::node::Node;
use super::restarts::{arrived_since_restart, crash_amid_traffic};
use super::tests::{assert_delivered, seeds, SECOND};
use super::{Brain, Happening, Rng, Weather, World, MS};
use crate::proto::mprds::{Handshake, HandshakeKind, Mprds, PathCount};
use crate::proto::rx::Position;
use crate::proto::wire::{Header, PING_PORT, PROBE_PORT};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// Negotiation of a node.
#[derive(Clone)]
pub(super) enum Negotiation {
    Rust {
        mprds: Mprds,
        /// Its handshakes have a generation, which those of this module have not.
        has_generation: bool,
    },
    /// Sketch of C RDS. It has the rule for another generation of the peer, but only one
    /// connection, whatever it has negotiated. So its order over several is not covered.
    C {
        generation: Option<NonZeroU32>,
        /// The last generation of the peer.
        of_peer: Option<NonZeroU32>,
        /// Paths in use; 0 before the first handshake.
        paths: u16,
        /// A probe was queued, and no handshake has arrived since.
        probed: bool,
    },
}

impl Negotiation {
    fn rust(generation: Option<NonZeroU32>) -> Self {
        Negotiation::Rust {
            mprds: Mprds::new(PathCount::One, generation),
            has_generation: generation.is_some(),
        }
    }

    fn c(generation: Option<NonZeroU32>) -> Self {
        Negotiation::C {
            generation,
            of_peer: None,
            paths: 0,
            probed: false,
        }
    }

    fn send(&mut self, kind: HandshakeKind) -> Handshake {
        match self {
            Negotiation::Rust { mprds, .. } => mprds.send(kind),
            Negotiation::C { generation, .. } => Handshake {
                paths: Some(8),
                generation: *generation,
                has_port_index: true,
            },
        }
    }
}

impl Node {
    /// Begins to negotiate. `has_generation` is about handshakes of this module.
    pub(super) fn negotiate(&mut self, has_generation: bool) {
        let generation = NonZeroU32::new(self.generation);
        self.negotiation = Some(match self.is_ours() {
            true => Negotiation::rust(generation.filter(|_| has_generation)),
            false => Negotiation::c(generation),
        });
    }

    /// Negotiates again after a restart, if the former self did.
    pub(super) fn negotiate_anew(&mut self, former: Option<Negotiation>) {
        match former {
            None => {}
            Some(Negotiation::Rust { has_generation, .. }) => self.negotiate(has_generation),
            Some(Negotiation::C { .. }) => self.negotiate(false),
        }
    }

    /// Negotiates again after the connection was forgotten, apart from this position.
    pub(super) fn negotiate_for_same(&mut self, position: Option<Position>) {
        if let Some(Negotiation::Rust { has_generation, .. }) = self.negotiation {
            self.negotiate(has_generation);
        }
        if let (Some(Negotiation::Rust { mprds, .. }), Some(it)) = (&mut self.negotiation, position)
        {
            mprds.resume(it.probe_generation());
        }
    }

    /// Returns the generation in the last handshake of C RDS.
    pub(super) fn peer_generation(&self) -> Option<NonZeroU32> {
        match &self.negotiation {
            Some(Negotiation::Rust { mprds, .. }) => mprds.peer_generation(),
            _ => None,
        }
    }

    /// Queues a probe of C RDS, if none is outstanding.
    pub(super) fn probe(&mut self) {
        if let Some(Negotiation::C { probed, .. }) = &mut self.negotiation {
            if !std::mem::replace(probed, true) {
                self.queue_handshake(HandshakeKind::Probe);
            }
        }
    }

    /// Queues a probe on a new connection of C RDS, if the peer is unknown.
    pub(super) fn probe_unknown(&mut self) {
        if let Some(Negotiation::C { paths: 0, .. }) = self.negotiation {
            self.probe();
        }
    }

    pub(super) fn shows_restart(&self, handshake: &Handshake) -> bool {
        match &self.negotiation {
            Some(Negotiation::Rust { mprds, .. }) => mprds.shows_restart(handshake),
            _ => false,
        }
    }

    pub(super) fn receive_handshake(&mut self, (kind, handshake): (HandshakeKind, Handshake)) {
        match &mut self.negotiation {
            Some(Negotiation::Rust { mprds, .. }) => {
                mprds.receive(kind, &handshake);
            }
            Some(Negotiation::C {
                of_peer,
                paths,
                probed,
                ..
            }) => {
                *paths = handshake.paths.unwrap_or(*paths).clamp(1, 8);
                *probed = false;
                if handshake.generation.is_some() {
                    let before = std::mem::replace(of_peer, handshake.generation);
                    if before.is_some() && before != handshake.generation {
                        self.begin_again_as_c();
                    }
                }
            }
            None => {}
        }
        if kind == HandshakeKind::Probe {
            self.queue_handshake(HandshakeKind::Answer);
        }
    }

    /// Notes that the connection has ended.
    pub(super) fn end_handshakes(&mut self) {
        if let Some(Negotiation::Rust { mprds, .. }) = &mut self.negotiation {
            mprds.down();
        }
    }

    /// Completes the header of a handshake that is being sent.
    pub(super) fn fill_handshake(&mut self, header: &mut Header, kind: HandshakeKind) {
        (header.sport, header.dport) = match kind {
            HandshakeKind::Probe => (PROBE_PORT, PING_PORT),
            HandshakeKind::Answer => (PING_PORT, PROBE_PORT),
        };
        let negotiation = self.negotiation.as_mut().unwrap();
        header.exthdr = negotiation.send(kind).emit();
    }

    /// Returns the paths of C RDS.
    fn paths_of_c(&self) -> Option<u16> {
        match self.negotiation {
            Some(Negotiation::C { paths, .. }) => Some(paths),
            _ => None,
        }
    }
}

impl World {
    /// Lets both nodes negotiate. C RDS has eight paths from a time when its peer ran C RDS, too,
    /// and has queued a probe at their end.
    fn negotiate(&mut self) {
        self.begin_to_negotiate(false);
    }

    /// Lets both nodes negotiate, and this module send generations.
    fn negotiate_with_generations(&mut self) {
        self.begin_to_negotiate(true);
    }

    fn begin_to_negotiate(&mut self, has_generation: bool) {
        for node in &mut self.nodes {
            node.negotiate(has_generation);
            if let Some(Negotiation::C { paths, .. }) = &mut node.negotiation {
                *paths = 8;
            }
            node.probe();
        }
    }
}

/// C RDS is left with one path, whatever breaks, and all messages arrive.
#[test]
fn c_gets_to_know_that_there_is_one_path() {
    seeds(200, |seed, trace| {
        let mut rng = Rng(!seed);
        let weather = Weather {
            loss: [0, 2, 10][rng.below(3) as usize],
            cm_delay: [MS, 10 * MS][rng.below(2) as usize],
            worker_delay: [0, 30 * MS][rng.below(2) as usize],
            calm_from: 10 * SECOND,
            fate: 0,
        };
        let brains = match seed % 2 {
            0 => [Brain::rust(), Brain::c()],
            _ => [Brain::c(), Brain::rust()],
        };
        let mut world = World::new(seed, weather, brains, trace);
        world.negotiate();
        for _ in 0..1 + rng.below(50) {
            let node = rng.below(2) as usize;
            let time = rng.below(10 * SECOND);
            world.at(time, Happening::Queue { node, len: 64 });
            if rng.percent(30) {
                world.at(time + rng.below(500), Happening::Break { node });
            }
        }
        assert!(world.run_until(40 * SECOND), "it never comes to rest");
        assert_delivered(&world);
        let paths: Vec<u16> = world.nodes.iter().filter_map(Node::paths_of_c).collect();
        assert_eq!(paths, [1]);
    });
}

/// A restarted C node is recognised by the generation in its probe, and only once. So nothing of
/// its new life is lost, and nothing arrives twice.
#[test]
fn a_restarted_c_node_is_recognised_by_its_generation() {
    let messages = Cell::new(0);
    seeds(300, |seed, trace| {
        let brains = [Brain::c(), Brain::rust()];
        let (world, crashed) = crash_amid_traffic(seed, trace, brains, World::negotiate);
        let (crashed, other) = (&world.nodes[crashed], &world.nodes[1 - crashed]);
        assert_eq!(arrived_since_restart(crashed, other), crashed.sent);
        messages.set(messages.get() + crashed.sent.len());
    });
    assert!(messages.get() > 0);
}

/// The first connection of a restarted C node breaks before anything arrives. All its messages are
/// retransmissions then, with numbers that have been used.
#[test]
fn retransmissions_of_a_restarted_c_node_are_new() {
    seeds(100, |seed, trace| {
        retransmissions_are_new(seed, trace, false);
    });
}

/// Its peer has forgotten the connection meanwhile, but has kept the position.
#[test]
fn a_forgotten_connection_takes_retransmissions_of_a_restarted_c_node_for_new_ones() {
    let positions = Cell::new(0);
    let runs = seeds(100, |seed, trace| {
        positions.set(positions.get() + retransmissions_are_new(seed, trace, true));
    });
    assert!(runs == 1 || positions.get() > 50);
}

/// Returns a world without loss, and which of its nodes is C RDS. The other one is of this module.
fn world_with_c(seed: u64, trace: bool) -> (World, usize) {
    let weather = Weather {
        loss: 0,
        cm_delay: MS,
        worker_delay: 0,
        calm_from: 10 * SECOND,
        fate: 0,
    };
    let c = (seed % 2) as usize;
    let mut brains = [Brain::rust(), Brain::rust()];
    brains[c] = Brain::c();
    (World::new(seed, weather, brains, trace), c)
}

/// Returns the number of positions that were kept.
fn retransmissions_are_new(seed: u64, trace: bool, forgets: bool) -> u32 {
    let (mut world, node) = world_with_c(seed, trace);
    world.negotiate();
    for count in 0..5 {
        world.at(count * 100 * MS, Happening::Queue { node, len: 64 });
    }
    let mut crash = 2 * SECOND;
    world.at(crash, Happening::Restart { node });
    if forgets {
        world.at(crash, Happening::Break { node: 1 - node });
        world.nodes[1 - node].has_room = false;
        world.looks_until = 6 * SECOND;
        world.at(crash + 100 * MS, Happening::Look { node: 1 - node });
        crash = 7 * SECOND;
    }
    for count in 1..4 {
        world.at(crash + count, Happening::Queue { node, len: 64 });
    }
    // One of them is between the first frame and its arrival.
    for count in 0..1500 {
        world.at(crash + 20 * count, Happening::Break { node });
    }
    assert!(world.run_until(40 * SECOND), "it never comes to rest");
    let (crashed, other) = (&world.nodes[node], &world.nodes[1 - node]);
    assert!(crashed.times_up > 1, "nothing broke");
    let (old, new) = other.delivered.split_at(5);
    assert_eq!(old, crashed.sent_before_restart);
    assert_eq!(new, crashed.sent);
    other.positions_kept
}

/// Restarts a node of this module while C RDS sends and links break. Returns the messages of C RDS
/// since then that did not arrive, and those that it delivered twice.
fn harm_of_a_restart(seed: u64, trace: bool, negotiate: fn(&mut World)) -> (usize, usize) {
    let mut rng = Rng(!seed);
    let (mut world, c) = world_with_c(seed, trace);
    negotiate(&mut world);
    for count in 0..5 {
        for node in [0, 1] {
            world.at(count * 100 * MS, Happening::Queue { node, len: 64 });
        }
    }
    let restart = 2 * SECOND;
    let mut soon = || restart + rng.below(40 * MS);
    for count in 0..800 {
        world.at(soon(), Happening::Queue { node: c, len: 64 });
        if count % 5 == 0 {
            let node = (soon() % 2) as usize;
            world.at(soon(), Happening::Queue { node, len: 64 });
            world.at(soon(), Happening::Break { node });
        }
    }
    world.at(restart, Happening::Restart { node: 1 - c });
    assert!(world.run_until(40 * SECOND), "it never comes to rest");
    let (restarted, c) = (&world.nodes[1 - c], &world.nodes[c]);
    let due = &c.sent[c.sent.len() - c.due_since_restart..];
    let arrived = BTreeSet::from_iter(&restarted.delivered);
    let lost = due.iter().filter(|one| !arrived.contains(one));
    let once = BTreeSet::from_iter(&c.delivered);
    (lost.count(), c.delivered.len() - once.len())
}

/// A restart of this module costs C RDS nothing.
#[test]
fn c_does_not_notice_a_restart() {
    seeds(50, |seed, trace| {
        let harm = harm_of_a_restart(seed, trace, World::negotiate);
        assert_eq!(harm, (0, 0));
    });
}

/// Handshakes of this module have no generation, because of what C RDS does with another one.
#[test]
fn c_would_lose_and_repeat_messages_at_another_generation() {
    let (lost, twice) = (Cell::new(0), Cell::new(0));
    let runs = seeds(50, |seed, trace| {
        let harm = harm_of_a_restart(seed, trace, World::negotiate_with_generations);
        lost.set(lost.get() + harm.0);
        twice.set(twice.get() + harm.1);
    });
    let (lost, twice) = (lost.get(), twice.get());
    println!("{lost} messages were lost and {twice} repeated in {runs} runs");
    assert!(runs == 1 || (lost > 0 && twice > 0));
}
