// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/mprds.rs`: vectors and rules.

use crate::proto::{
    exthdr::SPACE,
    mprds::{Handshake, HandshakeKind, Mprds, PathCount},
    wire::{Header, PING_PORT, PROBE_PORT},
};
use proptest::prelude::*;
use std::num::NonZeroU32;

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn generation(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

/// Returns the header of a handshake as it arrives.
pub(crate) fn header(kind: HandshakeKind, exthdr: [u8; SPACE]) -> Header {
    let (sport, dport) = match kind {
        HandshakeKind::Probe => (PROBE_PORT, PING_PORT),
        HandshakeKind::Answer => (PING_PORT, PROBE_PORT),
    };
    let mut bytes = [0; Header::LEN];
    let header = Header {
        sequence: 9,
        sport,
        dport,
        exthdr,
        ..Header::default()
    };
    header.emit(&mut bytes);
    Header::parse(&bytes).unwrap()
}

fn read(exthdr: [u8; SPACE]) -> Handshake {
    let found = Handshake::of(&header(HandshakeKind::Probe, exthdr));
    let (kind, handshake) = found.unwrap();
    assert_eq!(kind, HandshakeKind::Probe);
    let answer = Handshake::of(&header(HandshakeKind::Answer, exthdr));
    assert_eq!(answer, Some((HandshakeKind::Answer, handshake)));
    handshake
}

const C_7_2: [u8; SPACE] = *b"\x05\0\x08\x06\x01\x02\x03\x04\x08\0\0\0\0\0\0\0";
const UEK: [u8; SPACE] = *b"\x05\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0";
const C_4_9: [u8; SPACE] = *b"\x05\0\x08\x06\x01\x02\x03\x04\0\0\0\0\0\0\0\0";
const C_4_9_RESTARTED: [u8; SPACE] = *b"\x05\0\x08\x06\x05\x06\x07\x08\0\0\0\0\0\0\0\0";
const UEK_4: [u8; SPACE] = *b"\x05\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Passes a handshake to a node that has room for all paths.
pub(super) fn receive(node: &mut Mprds, kind: HandshakeKind, handshake: &Handshake) -> bool {
    let restarted = node.receive(kind, handshake);
    let wanted = node.outcome().wanted;
    node.set_ready(wanted, wanted);
    restarted
}

#[test]
fn vectors_of_all_versions() {
    let c_7_2 = Handshake {
        paths: Some(8),
        generation: generation(0x0102_0304),
        has_port_index: true,
    };
    assert_eq!(read(C_7_2), c_7_2);
    assert_eq!(c_7_2.emit(), C_7_2);
    let uek = Handshake {
        generation: None,
        ..c_7_2
    };
    assert_eq!(read(UEK), uek);
    assert_eq!(uek.emit(), UEK);
    let c_4_9 = Handshake {
        has_port_index: false,
        ..c_7_2
    };
    assert_eq!(read(C_4_9), c_4_9);
    assert_eq!(c_4_9.emit(), C_4_9);
    let uek_4 = Handshake {
        generation: None,
        ..c_4_9
    };
    assert_eq!(read(UEK_4), uek_4);
    assert_eq!(read([0; SPACE]), Handshake::default());
    assert_eq!(Handshake::default().emit(), [0; SPACE]);
    // Capabilities and checksum of UEK, and a number of 0 for "no generation".
    let more = *b"\x05\0\x08\x06\0\0\0\0\x07\0\0\0\x01\x08\0\0";
    assert_eq!(read(more), uek);
    // The last of several, as C RDS.
    let twice = *b"\x05\0\x08\x05\0\x02\x08\0\0\0\0\0\0\0\0\0";
    assert_eq!(read(twice).paths, Some(2));
}

#[test]
fn other_messages_are_no_handshakes() {
    let probe = header(HandshakeKind::Probe, C_7_2);
    for other in [
        Header { sport: 2, ..probe },
        Header { dport: 2, ..probe },
        Header { sport: 0, ..probe },
        Header { dport: 1, ..probe },
        Header { len: 1, ..probe },
    ] {
        assert_eq!(Handshake::of(&other), None);
    }
}

#[test]
fn counts_are_powers_of_two() {
    for (number, count) in [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 4),
        (7, 4),
        (8, 8),
        (9, 8),
        (u16::MAX, 8),
    ] {
        let found = PathCount::at_most(number);
        assert_eq!(found.number(), count, "{number}");
        assert!((0..=u8::MAX).all(|index| found.has(index) == (u16::from(index) < count)));
    }
}

/// A node with one path answers that to every peer, in bytes that C RDS reads.
#[test]
fn a_node_with_one_path_offers_one() {
    for peer in [C_7_2, UEK, C_4_9, UEK_4, [0; SPACE]] {
        let mut node = Mprds::new(PathCount::One, generation(0x0102_0304));
        node.up(0, true);
        assert!(!node.check(9 * SECOND));
        assert!(!receive(&mut node, HandshakeKind::Probe, &read(peer)));
        // There may be no memory for the answer.
        assert!(node.clone().check(9 * SECOND));
        let answer = node.send(HandshakeKind::Answer).emit();
        assert_eq!(answer, *b"\x05\0\x01\x06\x01\x02\x03\x04\x08\0\0\0\0\0\0\0");
        assert!(!node.check(9 * SECOND));
        assert_eq!(node.next_check(), None);
        assert_eq!(node.paths(), PathCount::One);
        assert!(node.may_connect(0) && !node.may_connect(1));
        let has_index = read(peer).has_port_index;
        for port in 40000..40008 {
            assert_eq!(node.incoming(port).is_some(), port == 40000 || !has_index);
        }
        // An older version may run on the peer at the next link, and its handshake shows that.
        node.down();
        assert_eq!(node.incoming(40001).is_some(), !has_index);
        receive(&mut node, HandshakeKind::Probe, &read(C_4_9_RESTARTED));
        assert_eq!(node.incoming(40001), Some(0));
    }
}

/// Without indices in its ports, any port of a peer is of the only path.
#[test]
fn ports_count_once_the_peer_says_so() {
    let mut node = Mprds::new(PathCount::Four, None);
    let incoming = |node: &Mprds| [40000, 40001, 40003, 40004].map(|port| node.incoming(port));
    let any = [Some(0); 4];
    assert_eq!(incoming(&node), any);
    receive(&mut node, HandshakeKind::Probe, &read(C_4_9));
    assert_eq!(incoming(&node), any);
    node.down();
    assert!(!receive(&mut node, HandshakeKind::Probe, &read(C_7_2)));
    assert!(!receive(&mut node, HandshakeKind::Answer, &read(C_7_2)));
    assert_eq!(incoming(&node), [Some(0), None, None, None]);
    assert_eq!(node.send(HandshakeKind::Answer).paths, Some(4));
    // The peer may use them now, and this node does not yet.
    assert_eq!(incoming(&node), [Some(0), Some(1), Some(3), None]);
    assert_eq!(node.paths(), PathCount::One);
}

/// Drives a node that has accepted its first path up to the use of eight paths of a C peer.
fn with_eight_paths() -> Mprds {
    let mut node = Mprds::new(PathCount::Eight, generation(7));
    node.up(0, true);
    assert!(node.check(0));
    assert_eq!(node.send(HandshakeKind::Probe).paths, Some(1));
    assert!(!node.check(0));
    assert!(!receive(&mut node, HandshakeKind::Answer, &read(C_7_2)));
    assert!(node.check(0));
    assert_eq!(node.send(HandshakeKind::Probe).paths, Some(8));
    assert_eq!(node.paths(), PathCount::One);
    assert!(!receive(&mut node, HandshakeKind::Answer, &read(C_7_2)));
    assert!(!node.check(9 * SECOND));
    assert_eq!(node.paths(), PathCount::Eight);
    assert!(node.may_connect(7) && !node.may_connect(8));
    node
}

/// C RDS uses as many paths as an answer says, and relies on the node with the lower address to
/// make them. If it does not answer probes, this node never knows that it is ready.
#[test]
fn several_paths_are_offered_to_a_peer_that_answers() {
    for peer in [C_7_2, UEK] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.up(0, true);
        assert!(node.check(0));
        node.send(HandshakeKind::Probe);
        receive(&mut node, HandshakeKind::Probe, &read(peer));
        assert!(!node.check(0));
        assert_eq!(node.send(HandshakeKind::Answer).paths, None);
        assert_eq!(node.incoming(40001), None);
        receive(&mut node, HandshakeKind::Answer, &read(peer));
        assert_eq!(node.send(HandshakeKind::Answer).paths, Some(8));
        assert!(node.check(0));
        // Without a generation it may have restarted, and may not answer any more.
        node.down();
        receive(&mut node, HandshakeKind::Probe, &read(peer));
        let sent = node.send(HandshakeKind::Answer).paths;
        assert_eq!(sent, (peer == C_7_2).then_some(8));
    }
}

/// This module begins with one path, or with none after another link. It answers each probe.
#[test]
fn several_paths_are_offered_to_this_module_at_once() {
    for paths in [Some(1), None] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.up(0, false);
        let peer = read(UEK);
        receive(
            &mut node,
            HandshakeKind::Probe,
            &Handshake { paths, ..peer },
        );
        assert_eq!(node.send(HandshakeKind::Answer).paths, Some(8));
        receive(&mut node, HandshakeKind::Probe, &peer);
        assert_eq!(node.send(HandshakeKind::Answer).paths, Some(8));
    }
}

/// Another peer may have the address by the time of the next link.
#[test]
fn an_unknown_peer_is_not_offered_several_paths() {
    let mut node = Mprds::new(PathCount::Eight, None);
    node.up(0, true);
    node.send(HandshakeKind::Probe);
    receive(&mut node, HandshakeKind::Answer, &read(C_7_2));
    node.down();
    assert_eq!(node.send(HandshakeKind::Probe).paths, Some(1));
}

/// The second probe has crossed the answer to the first one.
#[test]
fn an_answer_confirms_the_probe_that_it_answers() {
    let mut node = Mprds::new(PathCount::Eight, None);
    node.up(0, true);
    for now in [0, SECOND] {
        assert!(node.check(now));
        node.send(HandshakeKind::Probe);
    }
    receive(&mut node, HandshakeKind::Answer, &read(C_7_2));
    assert!(node.check(SECOND));
    assert_eq!(node.send(HandshakeKind::Probe).paths, Some(8));
    receive(&mut node, HandshakeKind::Answer, &read(C_7_2));
    assert_eq!(node.paths(), PathCount::One);
    receive(&mut node, HandshakeKind::Answer, &read(C_7_2));
    assert_eq!(node.paths(), PathCount::Eight);
}

#[test]
fn the_number_does_not_shrink() {
    let mut node = with_eight_paths();
    for paths in [None, Some(0), Some(1), Some(3)] {
        let less = Handshake {
            paths,
            ..read(C_7_2)
        };
        assert!(!receive(&mut node, HandshakeKind::Probe, &less));
        assert_eq!(node.send(HandshakeKind::Answer).paths, Some(8));
        assert_eq!(node.paths(), PathCount::Eight);
    }
    // Not by another generation on the same link either.
    let other = Handshake {
        generation: generation(99),
        ..read(UEK_4)
    };
    assert!(!node.shows_restart(&other));
    assert!(!receive(&mut node, HandshakeKind::Probe, &other));
    assert_eq!(node.paths(), PathCount::Eight);
}

/// Nothing makes a peer that is the same use fewer paths when its first path has a new link.
#[test]
fn a_new_link_to_the_same_peer() {
    let mut node = with_eight_paths();
    node.down();
    assert!(!node.may_connect(1) && node.may_connect(0));
    assert_eq!(node.incoming(40007), Some(7));
    node.up(10 * SECOND, false);
    assert_eq!(node.next_check(), Some(11 * SECOND));
    assert!(!node.check(11 * SECOND - 1));
    assert!(node.check(11 * SECOND));
    for kind in [HandshakeKind::Probe, HandshakeKind::Answer] {
        let neutral = node.send(kind).emit();
        assert_eq!(neutral, *b"\x06\0\0\0\x07\x08\0\0\0\0\0\0\0\0\0\0");
    }
    assert!(!node.shows_restart(&read(C_7_2)));
    assert!(!receive(&mut node, HandshakeKind::Probe, &read(C_7_2)));
    assert_eq!(node.send(HandshakeKind::Answer).paths, Some(8));
    assert_eq!(node.paths(), PathCount::Eight);
    assert!(node.may_connect(7));
}

/// A peer without a generation may be the same after its first handshake on another link, and goes
/// on to connect its paths. It may have heard of them although its answer was lost.
#[test]
fn a_peer_without_a_generation_keeps_its_paths_on_a_new_link() {
    for answers in [1, 2] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.up(0, true);
        for number in [1, 2] {
            assert!(node.check(0));
            node.send(HandshakeKind::Probe);
            if number <= answers {
                receive(&mut node, HandshakeKind::Answer, &read(UEK));
            }
        }
        assert_eq!(node.incoming(40007), Some(7));
        node.down();
        assert_eq!(node.incoming(40007), Some(7));
        receive(&mut node, HandshakeKind::Probe, &read(UEK));
        assert_eq!(node.incoming(40007), Some(7));
        assert_eq!(node.send(HandshakeKind::Answer).paths, None);
    }
}

#[test]
fn another_generation_is_a_restart() {
    let mut node = with_eight_paths();
    node.down();
    let other = Handshake {
        generation: generation(99),
        ..read(C_7_2)
    };
    assert!(node.shows_restart(&other));
    assert!(receive(&mut node, HandshakeKind::Probe, &other));
    assert!(!node.shows_restart(&other));
    assert_eq!(node.paths(), PathCount::One);
    assert!(!receive(&mut node, HandshakeKind::Probe, &other));

    // No generation: other software runs on the peer now.
    let mut node = with_eight_paths();
    node.down();
    assert!(!node.shows_restart(&read(UEK)));
    assert!(receive(&mut node, HandshakeKind::Probe, &read(UEK)));
    assert_eq!(node.paths(), PathCount::One);
    // It may have restarted with each link. Its number of paths shows that only if it is one.
    for (again, restarted) in [(UEK, false), (UEK_4, true)] {
        let mut node = node.clone();
        for paths in [1, 8] {
            assert_eq!(node.send(HandshakeKind::Probe).paths, Some(paths));
            receive(&mut node, HandshakeKind::Answer, &read(UEK));
        }
        assert_eq!(node.paths(), PathCount::Eight);
        node.down();
        assert_eq!(node.paths(), PathCount::Eight);
        assert_eq!(
            receive(&mut node, HandshakeKind::Probe, &read(again)),
            restarted
        );
        assert_eq!(node.paths(), PathCount::One);
    }
}

/// Only the generation is left of a forgotten connection.
#[test]
fn a_forgotten_connection_knows_the_generation() {
    assert_eq!(Mprds::new(PathCount::One, None).peer_generation(), None);
    let before = with_eight_paths();
    let c_7_2 = read(C_7_2);
    assert_eq!(before.peer_generation(), c_7_2.generation);
    for (now, restarted) in [(c_7_2, false), (read(C_4_9_RESTARTED), true)] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.resume(before.peer_generation());
        assert_eq!(node.paths(), PathCount::One);
        assert_eq!(node.incoming(40007), Some(0));
        assert_eq!(node.shows_restart(&now), restarted);
        assert_eq!(receive(&mut node, HandshakeKind::Probe, &now), restarted);
        assert_eq!(node.peer_generation(), now.generation);
    }
    let mut node = Mprds::new(PathCount::Eight, None);
    node.resume(None);
    assert!(!node.shows_restart(&c_7_2));
    assert!(!receive(&mut node, HandshakeKind::Probe, &c_7_2));
}

/// This module sends no generation. Its number is smaller than before once all is negotiated.
#[test]
fn fewer_paths_are_a_restart() {
    let ours = |number| Handshake {
        paths: Some(number),
        ..read(UEK)
    };
    for (most, left) in [
        (8, PathCount::Eight),
        (2, PathCount::Two),
        (1, PathCount::One),
    ] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.up(0, true);
        for number in [1, 8] {
            assert!(node.check(0));
            assert_eq!(node.send(HandshakeKind::Probe).paths, Some(number));
            assert!(!receive(&mut node, HandshakeKind::Answer, &ours(8)));
        }
        assert_eq!(node.paths(), PathCount::Eight);
        // A link breaks before anything is known about the peer.
        for _ in 0..2 {
            node.down();
            node.up(0, true);
            assert!(node.check(0));
            assert_eq!(node.send(HandshakeKind::Probe).paths, None);
            assert!(!receive(&mut node, HandshakeKind::Probe, &ours(1)));
            assert_eq!(node.paths(), PathCount::One);
        }
        assert!(!receive(&mut node, HandshakeKind::Answer, &ours(most)));
        assert!(node.check(0));
        let sent = node.send(HandshakeKind::Probe).paths;
        assert_eq!(sent, Some(if most == 2 { 2 } else { 8 }));
        let restarted = receive(&mut node, HandshakeKind::Answer, &ours(most));
        assert_eq!(restarted, most < 8);
        assert_eq!(node.paths(), left);
        // Only once.
        assert!(!receive(&mut node, HandshakeKind::Probe, &ours(most)));
    }
}

/// Answers to probes of an earlier link are sent again without a number: the peer does not know yet
/// if this node is the same. They say nothing about its paths.
#[test]
fn late_answers_are_no_restart() {
    let neutral = Handshake {
        paths: None,
        ..read(UEK)
    };
    let mut node = Mprds::new(PathCount::Eight, None);
    node.up(0, true);
    for _ in 0..2 {
        assert!(node.check(0));
        node.send(HandshakeKind::Probe);
        assert!(!receive(&mut node, HandshakeKind::Answer, &read(UEK)));
    }
    assert_eq!(node.paths(), PathCount::Eight);
    node.down();
    node.up(0, true);
    for sent in [None, Some(8)] {
        assert!(node.check(0));
        assert_eq!(node.send(HandshakeKind::Probe).paths, sent);
        assert!(!receive(&mut node, HandshakeKind::Answer, &neutral));
        assert!(node.next_check().is_some());
    }
    for _ in 0..2 {
        assert!(!receive(&mut node, HandshakeKind::Answer, &read(UEK)));
    }
    assert_eq!(node.paths(), PathCount::Eight);
    assert_eq!(node.next_check(), None);
}

#[test]
fn a_silent_peer_is_probed_five_times() {
    let mut node = Mprds::new(PathCount::Eight, None);
    node.up(0, false);
    let mut probes = vec![];
    while let Some(time) = node.next_check() {
        assert!(!node.check(time - 1));
        assert!(node.check(time));
        node.send(HandshakeKind::Probe);
        probes.push(time / SECOND);
    }
    assert_eq!(probes, [1, 2, 3, 4, 5]);
    assert!(!node.check(99 * SECOND));
    assert_eq!(node.paths(), PathCount::One);
}

/// Until it answers, what waits on the other paths can neither be sent nor be moved.
#[test]
fn a_peer_that_may_use_several_paths_is_probed_until_it_answers() {
    for (most, restarted) in [(8, false), (4, true)] {
        let mut node = Mprds::new(PathCount::Eight, None);
        node.up(0, true);
        for _ in 0..2 {
            assert!(node.check(0));
            node.send(HandshakeKind::Probe);
            receive(&mut node, HandshakeKind::Answer, &read(UEK));
        }
        assert_eq!(node.paths(), PathCount::Eight);
        node.down();
        node.up(0, true);
        let peer = Handshake {
            paths: Some(most),
            ..read(UEK)
        };
        receive(&mut node, HandshakeKind::Probe, &peer);
        let mut probes = vec![];
        for _ in 0..7 {
            let time = node.next_check().unwrap();
            assert!(time == 0 || !node.check(time - 1));
            assert!(node.check(time));
            assert_eq!(node.send(HandshakeKind::Probe).paths, None);
            probes.push(time / SECOND);
        }
        assert_eq!(probes, [0, 1, 2, 3, 4, 14, 24]);
        // The others have none. An answer to the next larger probe is one to that.
        assert!(!receive(&mut node, HandshakeKind::Answer, &peer));
        assert!(node.check(24 * SECOND));
        assert_eq!(node.send(HandshakeKind::Probe).paths, Some(most));
        assert_eq!(receive(&mut node, HandshakeKind::Answer, &peer), restarted);
        assert_eq!(node.paths().number(), most);
        assert_eq!(node.next_check(), None);
    }
}

/// A restarted peer without port indices may connect from the port of another path.
#[test]
fn a_handshake_on_another_path_shows_that_it_is_the_first() {
    let mut node = with_eight_paths();
    node.receive_elsewhere();
    assert_eq!(node.incoming(40007), Some(7));
    node.down();
    assert_eq!(node.incoming(40007), Some(7));
    node.receive_elsewhere();
    assert_eq!(node.incoming(40007), Some(0));
    // Messages may be left on the other paths.
    for peer in [UEK_4, C_4_9, C_4_9_RESTARTED] {
        assert!(node.clone().receive(HandshakeKind::Probe, &read(peer)));
    }
}

proptest! {
    /// Any extensions have a result.
    #[test]
    fn any_handshake(space: [u8; SPACE], small: bool, answer: bool) {
        let space = if small { space.map(|byte| byte % 10) } else { space };
        let handshake = read(space);
        let kind = if answer { HandshakeKind::Answer } else { HandshakeKind::Probe };
        let mut node = Mprds::new(PathCount::Eight, generation(1));
        node.up(0, true);
        node.check(0);
        node.send(HandshakeKind::Probe);
        prop_assert!(!receive(&mut node, kind, &handshake));
        prop_assert_eq!(node.paths(), PathCount::One);
        let offered = node.send(HandshakeKind::Answer).paths.unwrap_or(1);
        prop_assert!(offered == 1 || handshake.has_port_index);
    }
}
