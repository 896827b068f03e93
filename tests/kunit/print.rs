// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the limit on log messages about one connection.

use kernel::prelude::*;

#[kunit_tests(rds_print)]
mod suite {
    use crate::kapi::print::{
        counted,
        About, //
    };

    const WINDOW: u64 = 5_000_000_000;
    const MOST: usize = 10;

    /// Returns the state after as many messages as are permitted, and their number.
    fn flood(mut state: u64, now: u64, about: About) -> (u64, usize) {
        let mut count = 0;
        while let Some(next) = counted(state, now, about) {
            (state, count) = (next, count + 1);
        }
        (state, count)
    }

    #[test]
    fn each_kind_has_its_limit_in_each_window() {
        let (state, first) = flood(0, 7 * WINDOW, About::Failure);
        let (state, other) = flood(state, 7 * WINDOW, About::Change);
        let (state, late) = flood(state, 8 * WINDOW - 1, About::Failure);
        let (state, next) = flood(state, 8 * WINDOW, About::Failure);
        let (_, attempts) = flood(state, 8 * WINDOW, About::Attempt);
        assert_eq!((first, other, late), (MOST, MOST, 0));
        assert_eq!((next, attempts), (MOST, MOST));
    }
}
