// SPDX-License-Identifier: GPL-2.0

//! Tests of `kapi/rdma/bounce_bounds.rs`: parts of the bounce buffers that arenas may have.

use bounds::BounceBounds;
use proptest::prelude::*;

#[path = "../../../kapi/rdma/bounce_bounds.rs"]
mod bounds;

const SHARD: usize = 64 << 10;

/// Arenas with bounce buffers of `total` bytes.
struct Arenas {
    bounds: BounceBounds,
    total: usize,
    own: Vec<usize>,
}

impl Arenas {
    fn new(total: usize, count: usize) -> Self {
        Self {
            bounds: BounceBounds::new(total).unwrap(),
            total,
            own: vec![0; count],
        }
    }

    fn held(&self) -> usize {
        self.own.iter().sum()
    }

    /// Adds a shard to an arena if there is room.
    fn grow(&mut self, which: usize, bytes: usize) -> bool {
        let fits = self.bounds.has_room(self.own[which], self.held(), bytes);
        if fits {
            self.own[which] += bytes;
        }
        fits
    }

    fn fill(&mut self, which: usize) {
        while self.held() <= self.total && self.grow(which, SHARD) {}
    }
}

#[test]
fn a_kernel_without_bounce_buffers_has_no_bounds() {
    assert_eq!(BounceBounds::new(0), None);
}

#[test]
fn one_arena_has_an_eighth() {
    let mut arenas = Arenas::new(64 << 20, 1);
    arenas.fill(0);
    assert_eq!(arenas.held(), 8 << 20);
}

/// Four full arenas would leave nothing to a fifth if each had an eighth of half of the buffers.
#[test]
fn full_arenas_leave_room_for_others() {
    let mut arenas = Arenas::new(64 << 20, 9);
    for which in 0..9 {
        arenas.fill(which);
        assert!(arenas.own[which] >= SHARD, "{:?}", arenas.own);
    }
    assert!(arenas.held() <= 24 << 20);
}

#[test]
fn room_returns_with_the_shards_of_others() {
    let mut arenas = Arenas::new(64 << 20, 4);
    for which in 0..4 {
        arenas.fill(which);
    }
    let before = arenas.own[3];
    arenas.own[0] = 0;
    arenas.fill(3);
    assert!(arenas.own[3] > before);
}

#[test]
fn shards_and_operations_have_half() {
    let bounds = BounceBounds::new(64 << 20).unwrap();
    assert_eq!(bounds.arena(), 8 << 20);
    assert_eq!(bounds.operations(), 8 << 20);
    let mut held = (0..64usize << 20).step_by(SHARD).rev();
    let last = held.find(|held| bounds.has_room(0, *held, SHARD)).unwrap();
    assert!(last + SHARD + bounds.operations() <= 32 << 20);
}

proptest! {
    #[test]
    fn bounds_hold_in_any_order(
        total in 1usize..1 << 30,
        steps in prop::collection::vec((0usize..12, 1u32..5, any::<bool>()), 0..400),
    ) {
        let mut arenas = Arenas::new(total, 12);
        for (which, order, gives_back) in steps {
            let bytes = 4096 << order;
            let left = arenas.held();
            if gives_back {
                arenas.own[which] = arenas.own[which].saturating_sub(bytes);
            } else if arenas.grow(which, bytes) {
                // As much as the arena has is left to others.
                let most = arenas.total / 8 * 3;
                prop_assert!(arenas.own[which] <= most - arenas.held());
                prop_assert!(arenas.own[which] <= arenas.total / 8);
            } else {
                prop_assert_eq!(arenas.held(), left);
            }
        }
    }
}
