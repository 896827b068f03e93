// SPDX-License-Identifier: GPL-2.0
//! Tests of `proto::map_order`.

use crate::proto::map_order::MapOrder;
use crate::proto::SECOND;

#[test]
fn maps_on_one_path_are_in_order() {
    let mut order = MapOrder::default();
    assert!(!order.is_due(0));
    for now in 0..5 {
        order.note(3, now * SECOND);
    }
    assert!(!order.is_due(1000 * SECOND));
}

#[test]
fn a_map_on_another_path_is_doubtful_once_no_more_come() {
    let mut order = MapOrder::default();
    order.note(0, 0);
    order.note(1, SECOND);
    assert!(!order.is_due(2 * SECOND));
    // One more on the same path is newer than that, but not than the one on the first path.
    order.note(1, 2 * SECOND);
    assert!(!order.is_due(4 * SECOND - 1));
    assert!(order.is_due(4 * SECOND));
}

#[test]
fn a_map_that_comes_late_enough_is_the_newest() {
    let mut order = MapOrder::default();
    order.note(0, 0);
    order.note(1, 0);
    assert!(order.is_due(2 * SECOND));
    order.request(2 * SECOND);
    order.note(5, 2 * SECOND);
    assert!(!order.is_due(1000 * SECOND));
    order.note(0, 1000 * SECOND);
    assert!(!order.is_due(2000 * SECOND));
}

#[test]
fn nothing_is_doubtful_without_a_map() {
    let mut order = MapOrder::default();
    order.note(0, 0);
    order.note(1, 0);
    order.forget();
    assert!(!order.is_due(1000 * SECOND));
    order.note(2, 0);
    assert!(!order.is_due(1000 * SECOND));
}

#[test]
fn requests_have_a_minimum_distance() {
    let mut order = MapOrder::default();
    order.note(0, 0);
    order.note(1, 0);
    order.request(2 * SECOND);
    assert!(!order.is_due(17 * SECOND - 1));
    // The path did not come up.
    assert!(order.is_due(17 * SECOND));
}
