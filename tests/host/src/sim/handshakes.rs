// SPDX-License-Identifier: GPL-2.0

//! Handshakes about paths, as nodes over TCP have them: C RDS offers eight paths, this module one.

use super::node::Node;
use super::restarts::{arrived_since_restart, crash_amid_traffic};
use super::tests::{assert_delivered, seeds, SECOND};
use super::{Brain, Happening, Rng, Weather, World, MS};
use crate::proto::mprds::{Handshake, HandshakeKind, Mprds, PathCount};
use crate::proto::wire::{Header, PING_PORT, PROBE_PORT};
use std::cell::Cell;
use std::num::NonZeroU32;

/// Negotiation of a node.
#[derive(Clone)]
pub(super) enum Negotiation {
    Rust(Mprds),
    /// Sketch of C RDS. It has a single connection, and ignores generations, which no node of this
    /// module sends.
    C {
        generation: Option<NonZeroU32>,
        /// Paths in use; 0 before the first handshake.
        paths: u16,
        /// A probe was queued, and no handshake has arrived since.
        probed: bool,
    },
}

impl Negotiation {
    pub(super) fn new(ours: bool, generation: u32) -> Self {
        match ours {
            true => Negotiation::Rust(Mprds::new(PathCount::One, None)),
            false => Negotiation::C {
                generation: NonZeroU32::new(generation),
                paths: 0,
                probed: false,
            },
        }
    }

    fn send(&mut self, kind: HandshakeKind) -> Handshake {
        match self {
            Negotiation::Rust(mprds) => mprds.send(kind),
            Negotiation::C { generation, .. } => Handshake {
                paths: Some(8),
                generation: *generation,
                has_port_index: true,
            },
        }
    }
}

impl Node {
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
            Some(Negotiation::Rust(mprds)) => mprds.shows_restart(handshake),
            _ => false,
        }
    }

    pub(super) fn receive_handshake(&mut self, (kind, handshake): (HandshakeKind, Handshake)) {
        match &mut self.negotiation {
            Some(Negotiation::Rust(mprds)) => {
                mprds.receive(kind, &handshake);
            }
            Some(Negotiation::C { paths, probed, .. }) => {
                *paths = handshake.paths.unwrap_or(*paths).clamp(1, 8);
                *probed = false;
            }
            None => {}
        }
        if kind == HandshakeKind::Probe {
            self.queue_handshake(HandshakeKind::Answer);
        }
    }

    /// Notes that the connection has ended.
    pub(super) fn end_handshakes(&mut self) {
        if let Some(Negotiation::Rust(mprds)) = &mut self.negotiation {
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
        for node in &mut self.nodes {
            node.negotiate_anew(Some(Negotiation::new(true, 0)));
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
        let weather = Weather {
            loss: 0,
            cm_delay: MS,
            worker_delay: 0,
            calm_from: 10 * SECOND,
            fate: 0,
        };
        let node = (seed % 2) as usize;
        let mut brains = [Brain::rust(), Brain::rust()];
        brains[node] = Brain::c();
        let mut world = World::new(seed, weather, brains, trace);
        world.negotiate();
        for count in 0..5 {
            world.at(count * 100 * MS, Happening::Queue { node, len: 64 });
        }
        let crash = 2 * SECOND;
        world.at(crash, Happening::Restart { node });
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
    });
}
