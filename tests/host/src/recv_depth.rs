// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/recv_depth.rs`.

use crate::proto::recv_depth::*;
use proptest::prelude::*;

const MOST: u32 = 64;

/// Returns a full ring.
fn ring(first: u32, max: u32) -> RecvDepth {
    let mut ring = RecvDepth::new(first, max);
    ring.add(ring.missing());
    ring
}

/// Receives a burst of frames, limited by the posted receives, and then refills.
fn burst(ring: &mut RecvDepth, frames: u32) {
    for _ in 0..frames.min(ring.posted()) {
        ring.arrive();
    }
    if ring.is_low() {
        ring.add(ring.missing());
    }
    ring.end_run();
}

/// Returns a ring that bursts have made as deep as possible.
fn deepest(first: u32, max: u32) -> RecvDepth {
    let mut ring = ring(first, max);
    while ring.depth() < max {
        burst(&mut ring, max);
    }
    assert_eq!((ring.posted(), ring.surplus()), (max, 0));
    ring.end_period(MOST);
    ring
}

#[test]
fn starts_small() {
    let ring = RecvDepth::new(15, 510);
    assert_eq!((ring.depth(), ring.missing(), ring.surplus()), (15, 15, 0));
    assert!(ring.is_small() && ring.is_low());
    // A device may support fewer receives than wanted.
    assert_eq!(RecvDepth::new(15, 4).depth(), 4);
}

#[test]
fn doubles_below_a_quarter() {
    let mut r = ring(16, 100);
    for _ in 0..12 {
        assert!(!r.arrive());
    }
    assert!(r.arrive());
    assert_eq!((r.depth(), r.posted(), r.missing()), (32, 3, 29));
    // Once until there was a chance to refill, even if there was no memory for that.
    assert!(!r.arrive());
    r.end_run();
    assert!(r.arrive());
    assert_eq!((r.depth(), r.posted()), (64, 1));
    r.end_run();
    assert!(r.arrive());
    assert_eq!((r.depth(), r.posted()), (100, 0));
    r.end_run();
    assert!(!r.arrive());
    assert_eq!((r.depth(), r.posted()), (100, 0));
}

#[test]
fn asks_for_a_refill_when_a_quarter_is_missing() {
    let mut r = ring(16, 16);
    let lows: Vec<_> = (0..4)
        .map(|_| {
            r.arrive();
            r.is_low()
        })
        .collect();
    assert_eq!(lows, [false, false, false, true]);
}

#[test]
fn counts_arrivals_over_periods() {
    let mut r = deepest(15, 382);
    let before = r.arrived();
    burst(&mut r, 5);
    let _ = r.end_period(0);
    burst(&mut r, 7);
    assert_eq!(r.arrived().wrapping_sub(before), 12);
}

#[test]
fn halves_when_little_was_used() {
    let mut r = deepest(15, 480);
    let mut depths = vec![];
    for _ in 0..6 {
        assert!(r.end_period(0).shrank != r.is_small() || r.depth() == 15);
        depths.push(r.depth());
    }
    assert_eq!(depths, [240, 120, 60, 30, 15, 15]);
    assert!(!r.end_period(0).shrank);
}

#[test]
fn keeps_its_depth_while_it_is_used() {
    let mut r = deepest(15, 480);
    // Half of it, again and again.
    for _ in 0..10 {
        burst(&mut r, 240);
        assert!(!r.end_period(MOST).shrank);
    }
    assert_eq!(r.depth(), 480);
}

#[test]
fn a_surplus_goes_as_frames_arrive() {
    let mut r = deepest(15, 480);
    r.end_period(0);
    assert_eq!((r.depth(), r.posted(), r.surplus()), (240, 480, 240));
    assert!(!r.needs_spare(0) && !r.is_low());
    for _ in 0..240 {
        assert_eq!(r.missing(), 0);
        r.arrive();
    }
    assert_eq!((r.surplus(), r.missing()), (0, 0));
    assert!(!r.needs_spare(0));
    r.arrive();
    assert!(r.needs_spare(0) && !r.needs_spare(1));
}

#[test]
fn a_quiet_ring_asks_for_frames_until_it_is_small() {
    let mut r = deepest(15, 480);
    let mut asked = 0;
    for _ in 0..40 {
        let decision = r.end_period(MOST);
        assert!(decision.ask <= MOST);
        asked += decision.ask;
        for _ in 0..decision.ask {
            r.arrive();
            // The buffer is not posted again.
            assert!(!r.needs_spare(0));
            r.end_run();
        }
    }
    assert_eq!((r.depth(), r.posted(), asked), (15, 15, 465));
    assert!(r.is_small());
}

#[test]
fn a_ring_with_traffic_asks_for_none() {
    let mut r = deepest(15, 480);
    for _ in 0..20 {
        for _ in 0..3 {
            burst(&mut r, 5);
        }
        assert_eq!(r.end_period(MOST).ask, 0);
    }
    // The ring still shrank, because it was used so little.
    assert_eq!(r.depth(), 15);
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(u32),
    Refill(u32),
    Period,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..600u32).prop_map(Op::Arrive),
        (0..600u32).prop_map(Op::Refill),
        Just(Op::Period),
    ];
    prop::collection::vec(op, 0..200)
}

proptest! {
    /// The depth stays in its range for any sequence of steps. The posted receives exceed neither
    /// the depth that was wanted nor the device's limit.
    #[test]
    fn stays_in_range(first in 1..64u32, max in 1..1024u32, ops in ops()) {
        let mut r = RecvDepth::new(first, max);
        for op in ops {
            let before = r;
            match op {
                Op::Arrive(count) => {
                    for _ in 0..count.min(r.posted()) {
                        r.arrive();
                    }
                    r.end_run();
                }
                Op::Refill(count) => r.add(count.min(r.missing())),
                Op::Period => {
                    let decision = r.end_period(MOST);
                    prop_assert!(decision.ask <= r.surplus());
                    prop_assert_eq!(decision.shrank, r.depth() < before.depth());
                }
            }
            prop_assert!(r.depth() >= first.min(max) && r.depth() <= max);
            prop_assert!(r.posted() <= max);
            prop_assert!(r.missing() == 0 || r.surplus() == 0);
        }
    }

    /// Under a constant load a ring settles. Its depth does not oscillate.
    #[test]
    fn settles(load in 0..2000u32, max in 15..1024u32) {
        let mut r = deepest(15, max);
        let mut turns = 0;
        let mut grew = true;
        for _ in 0..64 {
            let before = r.depth();
            burst(&mut r, load);
            burst(&mut r, load);
            r.end_period(MOST);
            if r.depth() != before && grew != (r.depth() > before) {
                grew = r.depth() > before;
                turns += 1;
            }
        }
        prop_assert!(turns <= 2, "{turns} turns");
    }
}

#[test]
fn idle_depth_is_lowered_once() {
    let mut ring = RecvDepth::new(40, 64);
    ring.add(20);
    assert!(ring.lower(15));
    assert_eq!((ring.depth(), ring.missing(), ring.surplus()), (15, 0, 5));
    assert!(!ring.lower(15));
}

#[test]
fn depth_of_a_busy_ring_shrinks_to_the_lowered_one() {
    let mut ring = deepest(20, 64);
    assert!(ring.lower(15));
    assert_eq!(ring.depth(), 64);
    while ring.end_period(MOST).shrank {}
    assert_eq!(ring.depth(), 15);
}

/// The numbers in the documentation of `recv_depth.rs`, for fragments of 8 KiB and default
/// settings. They are the reason why the depth does not grow in one step.
#[test]
fn growth_in_steps_costs_few_pings_and_few_delays() {
    const FIRST: u32 = 14;
    const FULL: u32 = 382;
    let mut asked = vec![];
    let mut grown = ring(FIRST, FULL);
    burst(&mut grown, 12);
    // The second ring has grown in one step.
    for mut r in [grown, deepest(FIRST, FULL)] {
        let mut pings = 0;
        while !r.is_small() {
            let ask = r.end_period(MOST).ask;
            for _ in 0..ask {
                r.arrive();
                r.end_run();
            }
            pings += ask;
        }
        asked.push(pings);
    }
    assert_eq!(asked, [14, FULL - FIRST]);
    let mut r = ring(FIRST, FULL);
    let mut empty = 0;
    while r.depth() < FULL {
        burst(&mut r, FULL);
        empty += 1;
    }
    assert_eq!(empty, 5);
}
