// SPDX-License-Identifier: GPL-2.0

//! Two nodes that negotiate their paths: this module, with itself and with other software. Links
//! break, nodes restart and are replaced.

use super::mprds::{generation, header, SECOND};
use crate::proto::{
    exthdr::SPACE,
    mprds::{Handshake, HandshakeKind, Mprds, PathCount},
};
use proptest::prelude::*;
use std::{collections::VecDeque, num::NonZeroU32};

/// Kind of software, other than that under test.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// Most paths. `None`: it sends no extensions and reads none.
    most: Option<u16>,
    has_generation: bool,
    has_port_index: bool,
    /// It handles probes. C RDS does unless `net.rds.ping_enable` is 0.
    answers: bool,
}

/// Sketch of C RDS: the last handshake counts.
#[derive(Clone, Debug)]
struct Sketch {
    kind: Other,
    generation: u32,
    /// Paths in use; 0 before the first handshake.
    paths: u16,
    peer_has_port_index: bool,
    /// It probes when it has sent something, as the node that connects.
    eager: bool,
    times_up: u32,
}

impl Sketch {
    fn handshake(&self) -> Handshake {
        match self.kind.most {
            None => Handshake::default(),
            Some(most) => Handshake {
                paths: Some(most),
                generation: generation(self.generation).filter(|_| self.kind.has_generation),
                has_port_index: self.kind.has_port_index,
            },
        }
    }

    fn receive(&mut self, handshake: &Handshake) {
        let Some(most) = self.kind.most else {
            return;
        };
        let paths = handshake.paths.map_or(self.paths, |paths| paths.min(most));
        self.paths = paths.max(1);
        self.peer_has_port_index = handshake.has_port_index;
    }

    fn probes(&mut self, accepted: bool) -> bool {
        self.times_up += 1;
        let probes = self.times_up > 1 || accepted && self.paths == 0 || !accepted && self.eager;
        self.kind.most.is_some() && probes
    }
}

#[derive(Clone, Debug)]
enum Software {
    Ours {
        state: Mprds,
        most: PathCount,
        generation: Option<NonZeroU32>,
        /// Paths for which the node has room.
        room: PathCount,
    },
    Other(Sketch),
}

impl Software {
    /// Returns `true` if a connection for the path is accepted as that path.
    fn accepts(&self, index: u8) -> bool {
        match self {
            Software::Ours { state, room, .. } => {
                state.incoming(40000 + u16::from(index)) == Some(index) && room.has(index)
            }
            Software::Other(it) => it.peer_has_port_index && u16::from(index) < it.paths,
        }
    }

    fn has_port_index(&self) -> bool {
        match self {
            Software::Ours { .. } => true,
            Software::Other(it) => it.kind.has_port_index && it.kind.most.is_some(),
        }
    }

    fn most(&self) -> u16 {
        match self {
            Software::Ours { most, room, .. } => most.min(room).number(),
            Software::Other(it) => {
                let most = it.kind.most.filter(|_| it.kind.has_port_index);
                most.filter(|_| it.kind.answers).unwrap_or(1)
            }
        }
    }

    fn has_generation(&self) -> bool {
        match self {
            Software::Ours { .. } => false,
            Software::Other(it) => it.kind.has_generation && it.kind.most.is_some(),
        }
    }

    fn answers(&self) -> bool {
        match self {
            Software::Ours { .. } => true,
            Software::Other(it) => it.kind.answers,
        }
    }

    fn paths(&self) -> u16 {
        match self {
            Software::Ours { state, .. } => state.paths().number(),
            Software::Other(it) => it.paths,
        }
    }
}

fn ours() -> impl Strategy<Value = Software> {
    // This module sends no generation, but the rules are also for those that do.
    let generation = prop_oneof![Just(None), any::<u32>().prop_map(generation)];
    let room = prop_oneof![3 => Just(8), 1 => 1u16..=8];
    (any::<u16>(), room, generation).prop_map(|(most, room, generation)| {
        let most = PathCount::at_most(most % 9);
        let room = PathCount::at_most(room);
        Software::Ours {
            state: Mprds::new(most, generation),
            most,
            generation,
            room,
        }
    })
}

fn other() -> impl Strategy<Value = Software> {
    let most = prop_oneof![
        1 => Just(None),
        4 => Just(Some(8)),
        2 => (1u16..=8).prop_map(Some)
    ];
    let answers = prop_oneof![1 => Just(false), 5 => Just(true)];
    (most, answers, any::<(bool, bool, bool, u32)>()).prop_map(
        |(most, answers, (a, has_port_index, eager, number))| {
            // A node that neither probes nor answers says nothing about itself.
            let answers = answers || most.is_none();
            let eager = eager || !answers;
            Software::Other(Sketch {
                kind: Other {
                    most,
                    has_generation: a,
                    has_port_index,
                    answers,
                },
                generation: number | 1,
                paths: 0,
                peer_has_port_index: false,
                eager,
                times_up: 0,
            })
        },
    )
}

#[derive(Clone, Debug)]
enum Happening {
    /// The next frame for a node arrives.
    Arrive(usize),
    /// The next frame for a node arrives. The node has no memory for an answer to a probe.
    ArriveInVain(usize),
    /// The worker of a node adds paths.
    Work(usize),
    /// Time passes.
    Wait(u64),
    /// The first path gets a new link. The frames under way are sent again, as are as many of the
    /// last ones that have arrived at each node: their acknowledgements are lost.
    Relink([usize; 2]),
    /// A node forgets the connection, unless it has something to send.
    Forget(usize),
    /// A node restarts, perhaps with other software.
    Restart(usize, Software),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        12 => (0usize..2).prop_map(Happening::Arrive),
        1 => (0usize..2).prop_map(Happening::ArriveInVain),
        6 => (0usize..2).prop_map(Happening::Work),
        4 => (0..3 * SECOND / 2).prop_map(Happening::Wait),
        4 => (0usize..3, 0usize..3).prop_map(|(a, b)| Happening::Relink([a, b])),
        2 => (0usize..2).prop_map(Happening::Forget),
        1 => ours().prop_map(|new| Happening::Restart(0, new)),
        1 => other().prop_map(|new| Happening::Restart(1, new)),
        1 => ours().prop_map(|new| Happening::Restart(1, new)),
    ]
}

/// A message on the first path.
#[derive(Clone, Debug)]
struct Frame {
    kind: HandshakeKind,
    exthdr: [u8; SPACE],
    /// It was sent on an earlier link, too.
    again: bool,
    /// It has arrived before.
    duplicate: bool,
    /// Time at which the probe was sent.
    since: u64,
}

/// Two nodes, and the first path between them.
struct World {
    nodes: [Software; 2],
    /// Handshakes on the way to each node.
    wires: [VecDeque<Frame>; 2],
    /// Those that have arrived at each node on this link.
    arrived: [VecDeque<Frame>; 2],
    now: u64,
    /// The node that connects.
    lower: usize,
    /// Probes of each node on this link.
    probes: [u32; 2],
    /// Frames of this link for whose answer each node had no memory.
    in_vain: [u32; 2],
    /// Each node has received a late answer since the last restart: to a probe of an earlier link,
    /// or to one that counted as lost.
    late: [bool; 2],
    /// Paths of the second node by the last handshake with a number, if they are several. 0 after a
    /// restart.
    most_used: u16,
    /// Paths on which each node may have messages, and whether its peer has restarted since it knew
    /// that there is none of an earlier one.
    used: [u16; 2],
    has_new_peer: [bool; 2],
    /// Each node has forgotten paths that its peer may still connect, and accepts none yet.
    has_forgotten: [bool; 2],
}

impl World {
    fn new(nodes: [Software; 2], lower: usize) -> Self {
        let mut world = World {
            nodes,
            wires: Default::default(),
            arrived: Default::default(),
            now: 5,
            lower,
            probes: [0; 2],
            in_vain: [0; 2],
            late: [false; 2],
            most_used: 0,
            used: [1; 2],
            has_new_peer: [false; 2],
            has_forgotten: [false; 2],
        };
        world.relink([0; 2]);
        world
    }

    fn relink(&mut self, unacknowledged: [usize; 2]) {
        self.probes = [0; 2];
        self.in_vain = [0; 2];
        for node in 0..2 {
            if let Software::Ours { state, .. } = &mut self.nodes[node] {
                state.down();
            }
            self.repeat(node, unacknowledged[1 - node]);
        }
        for node in 0..2 {
            let accepted = node != self.lower;
            match &mut self.nodes[node] {
                Software::Ours { state, .. } => state.up(self.now, accepted),
                Software::Other(it) => {
                    if it.probes(accepted) {
                        self.send(node, HandshakeKind::Probe, self.now);
                    }
                }
            }
            self.check(node);
        }
    }

    /// Sends the messages of a node again on a new link, as far as they have not arrived. As many
    /// of the others are repeated, too.
    fn repeat(&mut self, node: usize, others: usize) {
        let mut arrived = std::mem::take(&mut self.arrived[1 - node]);
        let mut again = arrived.split_off(arrived.len().saturating_sub(others));
        again.iter_mut().for_each(|frame| frame.duplicate = true);
        again.append(&mut self.wires[1 - node]);
        for frame in &mut again {
            frame.again = true;
            // Other software does not change a header.
            if let Software::Ours { state, .. } = &mut self.nodes[node] {
                frame.exthdr = state.send(frame.kind).emit();
            }
        }
        self.wires[1 - node] = again;
    }

    fn send(&mut self, node: usize, kind: HandshakeKind, since: u64) {
        let handshake = match &mut self.nodes[node] {
            Software::Ours { state, .. } => state.send(kind),
            Software::Other(it) => it.handshake(),
        };
        self.probes[node] += u32::from(kind == HandshakeKind::Probe);
        self.wires[1 - node].push_back(Frame {
            kind,
            exthdr: handshake.emit(),
            again: false,
            duplicate: false,
            since,
        });
    }

    fn check(&mut self, node: usize) {
        let now = self.now;
        self.has_forgotten[node] &= !self.nodes[node].accepts(1);
        while let Software::Ours { state, .. } = &mut self.nodes[node] {
            if !state.check(now) {
                break;
            }
            self.send(node, HandshakeKind::Probe, now);
        }
    }

    fn work(&mut self, node: usize) {
        if let Software::Ours { state, room, .. } = &mut self.nodes[node] {
            let wanted = state.outcome().wanted;
            state.set_ready(wanted, wanted.min(*room));
        }
        self.check(node);
    }

    fn arrive(&mut self, node: usize, answers: bool) -> bool {
        let Some(frame) = self.wires[node].pop_front() else {
            return false;
        };
        self.arrived[node].push_back(frame.clone());
        if frame.duplicate {
            return true;
        }
        let is_late = frame.again || frame.since + 10 * SECOND <= self.now;
        self.late[node] |= is_late && frame.kind == HandshakeKind::Answer;
        let header = header(frame.kind, frame.exthdr);
        let (kind, handshake) = Handshake::of(&header).unwrap();
        if !self.nodes[node].has_port_index() {
            let offered = handshake.paths.unwrap_or(1);
            assert_eq!(offered, 1, "an old peer must not use several paths");
        }
        let is_taken = kind == HandshakeKind::Answer || self.nodes[node].answers();
        match &mut self.nodes[node] {
            Software::Other(_) if !is_taken => {}
            Software::Ours { state, .. } => {
                if state.receive(kind, &handshake) {
                    assert!(self.has_new_peer[node], "the peer has not restarted");
                    self.has_new_peer[node] = false;
                    self.used[node] = 1;
                }
                self.used[node] = self.used[node].max(state.paths().number());
            }
            Software::Other(it) => {
                it.receive(&handshake);
                assert!(it.paths >= self.most_used, "its messages are stranded");
                if handshake.paths.is_some() && it.paths > 1 {
                    self.most_used = it.paths;
                }
            }
        }
        if kind == HandshakeKind::Probe && answers && is_taken {
            self.send(node, HandshakeKind::Answer, frame.since);
        }
        self.check(node);
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive(node) => {
                self.arrive(node, true);
            }
            Happening::ArriveInVain(node) => {
                // A node with no memory for long may need another link.
                self.in_vain[node] += 1;
                self.arrive(node, self.in_vain[node] > 4);
            }
            Happening::Work(node) => self.work(node),
            Happening::Wait(time) => {
                self.now += time;
                (0..2).for_each(|node| self.check(node));
            }
            Happening::Relink(unacknowledged) => self.relink(unacknowledged),
            Happening::Forget(node) if self.wires[1 - node].is_empty() => self.forget(node),
            Happening::Forget(_) => {}
            Happening::Restart(node, new) => {
                self.nodes[node] = new;
                self.most_used = 0;
                self.used[node] = 1;
                self.has_new_peer[node] = false;
                self.has_new_peer[1 - node] = true;
                self.has_forgotten[node] = false;
                self.late = [false; 2];
                // The other node still has its messages, and numbers them again.
                self.wires[1 - node].clear();
                for frame in &mut self.wires[node] {
                    frame.duplicate = false;
                }
                self.arrived = Default::default();
                self.relink([0; 2]);
            }
        }
    }

    fn forget(&mut self, node: usize) {
        if let Software::Ours {
            state,
            most,
            generation,
            ..
        } = &mut self.nodes[node]
        {
            let known = state.peer_generation();
            *state = Mprds::new(*most, *generation);
            state.resume(known);
            self.used[node] = 1;
            self.has_forgotten[node] = true;
            // Nor has the peer anything to send, except on the first path.
            self.most_used = 0;
            self.relink([0; 2]);
        }
    }

    /// Checks what holds at all times.
    fn verify(&self) {
        for node in 0..2 {
            if let Software::Ours { state, .. } = &self.nodes[node] {
                for index in (1..8).filter(|index| state.may_connect(*index)) {
                    // Other software may learn a bit later then.
                    let peer = 1 - node;
                    let learns = self.late[node] || self.has_forgotten[peer];
                    let ready = learns || self.nodes[peer].accepts(index);
                    assert!(ready, "path {index} of {:?}", self.nodes);
                }
                assert!(self.probes[node] <= 30, "too many probes");
            }
        }
    }

    /// Waits until no handshake is under way, and none comes.
    fn rest(&mut self) {
        for _ in 0..40 {
            (0..2).for_each(|node| self.work(node));
            while self.arrive(0, true) || self.arrive(1, true) {
                self.verify();
                (0..2).for_each(|node| self.work(node));
            }
            self.happen(Happening::Wait(SECOND));
            self.verify();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8 * ProptestConfig::default().cases,
        ..ProptestConfig::default()
    })]

    /// Both nodes finally use the same paths, and no node uses one for which its peer is not ready.
    #[test]
    fn nodes_agree(
        first in ours(),
        second in prop_oneof![ours(), other()],
        lower in 0usize..2,
        rests: bool,
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let mut world = World::new([first, second], lower);
        if rests {
            world.rest();
        }
        for happening in happenings {
            world.happen(happening);
            world.verify();
        }
        world.rest();
        let [a, b] = &world.nodes;
        let most = PathCount::at_most(a.most().min(b.most()));
        prop_assert_eq!(a.paths(), most.number(), "{:?}", world.nodes);
        prop_assert_eq!(b.paths().max(1), most.number(), "{:?}", world.nodes);
        for index in (1..8).filter(|index| most.has(*index)) {
            prop_assert!(a.accepts(index) && b.accepts(index), "{:?}", world.nodes);
        }
        if let (Software::Ours { state, .. }, 0) = (a, world.lower) {
            let may_connect = (1..8).filter(|index| b.paths() > u16::from(*index));
            prop_assert!(may_connect.into_iter().all(|index| state.may_connect(index)));
        }
        // Such a node may have restarted without a sign.
        let is_known = b.answers() || b.has_generation();
        for (node, used) in world.nodes.iter().zip(world.used) {
            if let Software::Ours { state, .. } = node {
                prop_assert!(state.next_check().is_none() || !b.answers());
                prop_assert!(used <= node.paths() || !is_known, "messages are stranded");
            }
        }
    }
}
