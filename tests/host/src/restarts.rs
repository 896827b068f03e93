// SPDX-License-Identifier: GPL-2.0

//! Tests of `conn/negotiation.rs`: paths whose messages move after a restart of the peer.

use super::mprds::generation;
use crate::proto::mprds::{Handshake, HandshakeKind, Mprds, PathCount};
use negotiation::Negotiation;

#[allow(dead_code)] // The module uses the rest.
#[path = "../../../conn/negotiation.rs"]
mod negotiation;

fn fresh() -> Negotiation {
    Negotiation::new(Some(Mprds::new(PathCount::Eight, None)))
}

fn result(negotiation: &Negotiation) -> (PathCount, Option<PathCount>) {
    let paths = negotiation.outcome().unwrap().paths;
    (paths, negotiation.restart())
}

/// Adds all paths that the negotiation wants.
fn make_ready(negotiation: &mut Negotiation) {
    let wanted = negotiation.outcome().unwrap().wanted;
    negotiation.set_ready(wanted, wanted);
}

/// Negotiates on a new link with a peer that offers `paths`.
fn negotiate(negotiation: &mut Negotiation, paths: u16, number: u32) {
    let answer = Handshake {
        paths: Some(paths),
        generation: generation(number),
        has_port_index: true,
    };
    negotiation.down();
    negotiation.up(0, true);
    for _ in 0..2 {
        assert!(negotiation.check(0));
        negotiation.send(HandshakeKind::Probe);
        negotiation.receive(HandshakeKind::Answer, &answer);
        make_ready(negotiation);
    }
}

fn moving(negotiation: &Negotiation) -> Vec<u8> {
    (0..8).filter(|path| negotiation.will_move(*path)).collect()
}

fn allowed(negotiation: &Negotiation) -> Vec<u8> {
    (1..8)
        .filter(|path| negotiation.may_connect(*path))
        .collect()
}

#[test]
fn a_smaller_number_leaves_the_paths_of_the_peer_alone() {
    let mut negotiation = fresh();
    negotiate(&mut negotiation, 8, 0);
    assert_eq!(result(&negotiation), (PathCount::Eight, None));
    assert_eq!(allowed(&negotiation), [1, 2, 3, 4, 5, 6, 7]);
    negotiate(&mut negotiation, 4, 0);
    let four = PathCount::Four;
    assert_eq!(result(&negotiation), (four, Some(four)));
    assert_eq!(moving(&negotiation), [4, 5, 6, 7]);
    assert!(allowed(&negotiation).is_empty());
    negotiation.end_restart();
    assert!(moving(&negotiation).is_empty());
    assert_eq!(allowed(&negotiation), [1, 2, 3]);
}

#[test]
fn with_another_generation_all_other_paths_move() {
    let mut negotiation = fresh();
    negotiate(&mut negotiation, 8, 1);
    negotiate(&mut negotiation, 8, 1);
    assert_eq!(result(&negotiation), (PathCount::Eight, None));
    negotiate(&mut negotiation, 8, 2);
    let one = PathCount::One;
    assert_eq!(result(&negotiation), (PathCount::Eight, Some(one)));
    assert_eq!(moving(&negotiation), [1, 2, 3, 4, 5, 6, 7]);
    assert!(allowed(&negotiation).is_empty());
}

/// The worker may be late.
#[test]
fn the_smallest_number_since_the_last_look_counts() {
    let mut negotiation = fresh();
    for paths in [8, 2, 8, 4] {
        negotiate(&mut negotiation, paths, 0);
    }
    let kept = Some(PathCount::Two);
    assert_eq!(result(&negotiation), (PathCount::Four, kept));
    assert_eq!(moving(&negotiation), [2, 3, 4, 5, 6, 7]);
}

/// The worker of the first path wakes those of all others.
#[test]
fn a_handshake_that_changes_nothing_is_not_reported() {
    let handshake = |number| Handshake {
        paths: Some(number),
        generation: None,
        has_port_index: true,
    };
    let mut negotiation = fresh();
    negotiation.up(0, false);
    let mut report = |kind, number| {
        negotiation.receive(kind, &handshake(number));
        negotiation.take_change()
    };
    // The node may probe with another number now.
    assert!(report(HandshakeKind::Probe, 1));
    assert!(report(HandshakeKind::Probe, 4));
    for _ in 0..3 {
        assert!(!report(HandshakeKind::Probe, 4));
        assert!(!report(HandshakeKind::Probe, 1));
    }
    // Now it uses two paths, and needs no answer any more.
    negotiate(&mut negotiation, 4, 0);
    assert!(negotiation.take_change());
    let kinds = [HandshakeKind::Probe, HandshakeKind::Answer];
    for kind in kinds.into_iter().cycle().take(6) {
        negotiation.receive(kind, &handshake(4));
        assert!(!negotiation.take_change());
    }
    // The first one on another link shows whether the peer is the same.
    negotiation.down();
    negotiation.up(0, true);
    negotiation.receive(HandshakeKind::Probe, &handshake(4));
    assert!(negotiation.take_change());
}
