// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/credits.rs`: two sides with wires between them.

use crate::proto::credits::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// One side: its ring, its unsent messages, and the frames on their way to it.
struct Side {
    credits: Credits,
    depth: u32,
    posted: u32,
    /// Minimum `depth`.
    first: u32,
    unsent: u32,
    got: u32,
    wire: VecDeque<(bool, u8)>,
    bare: u32,
}

impl Side {
    fn new(depth: u32) -> Self {
        let mut side = Self {
            credits: Credits::on(),
            depth,
            posted: 0,
            first: depth,
            unsent: 0,
            got: 0,
            wire: VecDeque::new(),
            bare: 0,
        };
        side.refill();
        side
    }

    /// Works like `RecvDepth::is_low`.
    fn refill(&mut self) {
        if self.posted <= self.depth - self.depth / 4 {
            let missing = self.depth - self.posted;
            self.posted = self.depth;
            self.credits.posted(missing, self.posted);
        }
    }

    /// Works like `RecvDepth::arrive`.
    fn grow(&mut self) {
        self.depth = (self.depth * 2).min(4096);
        self.refill();
    }

    /// Works like `RecvDepth::end_period`.
    fn shrink(&mut self) {
        let half = (self.depth / 2).max(self.first);
        if half < self.depth {
            self.depth = half;
            self.credits.posted(0, half.min(self.posted));
        }
    }

    fn transmit(&mut self, peer: &mut Side) -> bool {
        let mut any = false;
        while self.credits.may_send() && (self.unsent > 0 || self.credits.is_due()) {
            let data = self.unsent > 0;
            self.unsent -= u32::from(data);
            self.bare += u32::from(!data);
            peer.wire
                .push_back((data, self.credits.take_advertisement()));
            self.credits.spend();
            any = true;
        }
        any
    }

    /// Receives up to `count` frames without a chance to refill.
    fn receive(&mut self, count: usize) -> bool {
        let count = count.min(self.wire.len());
        for (data, credit) in self.wire.drain(..count) {
            self.posted = self
                .posted
                .checked_sub(1)
                .expect("a frame found no receive");
            self.credits.grant(credit.into());
            self.got += u32::from(data);
        }
        count > 0
    }
}

fn connected(depths: (u32, u32)) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(depths.0), Side::new(depths.1));
    let (from_a, from_b) = (a.credits.offer(), b.credits.offer());
    assert_eq!((from_a, from_b), depths);
    a.credits.begin(from_b);
    b.credits.begin(from_a);
    (a, b)
}

/// Receives run out while half of them are unadvertised. The remaining ones are then advertised.
#[test]
fn the_last_credits_are_advertised() {
    let mut credits = Credits::on();
    credits.begin(8);
    credits.posted(192, 192);
    assert_eq!(credits.offer(), 192);
    credits.posted(190, 382);
    assert!(!credits.is_due());
    credits.posted(0, 191);
    assert!(credits.is_due());
    assert_eq!(credits.take_advertisement(), 190);
    credits.posted(0, 0);
    assert!(!credits.is_due());
}

#[test]
fn without_control_everything_may_be_sent() {
    let mut credits = Credits::off();
    credits.posted(300, 300);
    assert!(credits.may_send() && !credits.is_due());
    assert_eq!((credits.offer(), credits.take_advertisement()), (0, 0));
    // The same without flow control on this node.
    credits.begin(300);
    credits.grant(300);
    assert_eq!(credits, Credits::off());
}

/// A reply without credits leaves this node free to send, and no receives are advertised to the
/// peer.
#[test]
fn a_peer_may_not_want_it() {
    let mut credits = Credits::on();
    credits.posted(8, 8);
    assert_eq!(credits.offer(), 8);
    assert!(!credits.may_send());
    // A pending advertisement is dropped. It was due because the ring was not full at first.
    credits.posted(8, 16);
    assert!(credits.is_due());
    credits.begin(0);
    assert!(!credits.is_due());
    for _ in 0..1000 {
        assert!(credits.may_send());
        credits.spend();
        credits.posted(8, 8);
        assert!(!credits.is_due());
        assert_eq!(credits.take_advertisement(), 0);
    }
    // A grant of 0 changes nothing.
    credits.grant(0);
    assert!(!credits.is_due());
}

/// Models C RDS as the passive side with its flow control on. It offers nothing, obeys this node's
/// offer, and reveals that with its first header.
#[test]
fn a_peer_may_keep_to_our_offer_alone() {
    let mut credits = Credits::on();
    credits.posted(8, 8);
    assert_eq!(credits.offer(), 8);
    credits.begin(0);
    // The peer has sent seven frames. All of their receives were replaced before the first frame is
    // handled.
    credits.posted(7, 8);
    assert!(!credits.is_due());
    credits.grant(255);
    assert!(credits.is_due());
    assert_eq!(credits.take_advertisement(), 7);
    // The same if its header arrives before its reply.
    let mut early = Credits::on();
    early.posted(8, 8);
    early.offer();
    early.grant(255);
    early.posted(1, 8);
    early.begin(0);
    assert!(early.may_send() && early.is_due());
    // The peer may send while it has receives of this node, but this node is not limited by
    // credits.
    for _ in 0..1000 {
        assert!(credits.may_send());
        credits.spend();
    }
    credits.posted(4, 8);
    assert!(credits.is_due());
    assert_eq!(credits.take_advertisement(), 4);
}

/// The ring shrinks while just under half of it is unadvertised. No receives are posted until the
/// rest is used.
#[test]
fn a_smaller_ring_is_advertised_at_once() {
    let mut credits = Credits::on();
    credits.begin(8);
    credits.posted(30, 30);
    credits.offer();
    credits.posted(14, 30);
    assert!(!credits.is_due());
    credits.posted(0, 15);
    assert!(credits.is_due());
}

#[test]
fn the_last_receive_is_for_a_frame_that_brings_some() {
    let mut credits = Credits::on();
    credits.posted(8, 8);
    assert_eq!(credits.offer(), 8);
    credits.begin(2);
    assert!(credits.may_send());
    credits.spend();
    assert!(!credits.may_send());
    credits.posted(1, 8);
    assert!(credits.may_send());
    assert_eq!(credits.take_advertisement(), 1);
    credits.spend();
    credits.posted(1, 8);
    assert!(!credits.may_send());
}

#[test]
fn half_of_the_ring_is_advertised_without_a_message() {
    let mut credits = Credits::on();
    credits.posted(600, 600);
    credits.offer();
    credits.posted(299, 600);
    assert!(!credits.is_due());
    credits.posted(1, 600);
    assert!(credits.is_due());
    // The next header grants what does not fit into this one.
    assert_eq!(
        (
            credits.take_advertisement(),
            credits.take_advertisement(),
            credits.take_advertisement()
        ),
        (255, 45, 0)
    );
    assert!(!credits.is_due());
    // A header is sent for the rest only if it is as large again.
    credits.posted(600, 900);
    assert_eq!(
        (credits.take_advertisement(), credits.is_due()),
        (255, true)
    );
    assert_eq!(
        (credits.take_advertisement(), credits.is_due()),
        (255, false)
    );
}

/// Both sides have two receives. Messages get through, some at each check for memory, and no
/// headers are sent endlessly between checks.
#[test]
fn two_that_are_short_of_memory() {
    let (mut a, mut b) = connected((4, 4));
    (a.depth, b.depth) = (2, 2);
    (a.unsent, b.unsent) = (20, 20);
    let mut looks = 0;
    while a.got < 20 || b.got < 20 {
        let mut rounds = 0;
        while a.transmit(&mut b) | b.transmit(&mut a) {
            a.receive(usize::MAX);
            b.receive(usize::MAX);
            a.refill();
            b.refill();
            rounds += 1;
            assert!(rounds < 100, "they do not stop");
        }
        a.credits.posted(0, a.posted);
        b.credits.posted(0, b.posted);
        looks += 1;
        assert!(looks < 100, "they do not go on");
    }
}

proptest! {
    /// Every frame finds a receive, all frames arrive, and then the exchange stops.
    #[test]
    fn nothing_sticks(
        depths in (Credits::LEAST..400, Credits::LEAST..400),
        steps in prop::collection::vec((any::<bool>(), 0u32..1000, 0usize..500, 0u8..6), 0..40),
    ) {
        let (mut a, mut b) = connected(depths);
        let mut sent = (0, 0);
        for (first, messages, arrive, ring) in steps {
            let (side, peer, sent) = match first {
                true => (&mut a, &mut b, &mut sent.0),
                false => (&mut b, &mut a, &mut sent.1),
            };
            side.unsent += messages;
            *sent += messages;
            side.transmit(peer);
            peer.receive(arrive);
            match ring {
                0 => peer.grow(),
                1 => peer.shrink(),
                _ => peer.refill(),
            }
            peer.transmit(side);
        }
        for _ in 0..100_000 {
            a.refill();
            b.refill();
            let mut any = a.transmit(&mut b) | b.transmit(&mut a);
            any |= a.receive(usize::MAX) | b.receive(usize::MAX);
            if !any {
                break;
            }
        }
        prop_assert_eq!((b.got, a.got), sent);
        prop_assert!(a.wire.is_empty() && b.wire.is_empty());
        // Each header without a message takes two frames, so the exchange of advertisements ends.
        prop_assert!(2 * a.bare <= a.got + b.bare + 2);
        prop_assert!(2 * b.bare <= b.got + a.bare + 2);
    }
}
