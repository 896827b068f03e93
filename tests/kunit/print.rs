// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the limits on log messages.

use kernel::prelude::*;

#[kunit_tests(rds_print)]
mod suite {
    use crate::kapi::{
        print::{
            counted,
            may_print,
            may_print_while_busy,
            About,
            LogLimit, //
        },
        time, //
    };

    const KINDS: [About; 4] = [
        About::Failure,
        About::Change,
        About::Program,
        About::Attempt,
    ];
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

    /// Returns `true` if at most `most` messages are permitted in each window.
    fn is_limited(most: u64, permits: impl Fn() -> bool) -> bool {
        let start = time::monotonic_ns();
        let count = (0..1000).filter(|_| permits()).count() as u64;
        // The calls may begin at the end of one window, and end at the start of another one.
        let windows = (time::monotonic_ns() - start) / WINDOW + 2;
        count <= most * windows
    }

    #[test]
    fn a_flood_about_a_connection_is_limited() {
        let limit = LogLimit::new(true);
        let limited = is_limited(10, || limit.may_print(About::Failure));
        assert!(limited);
    }

    /// The kernel's limit begins with its first message. Until then it refused those beside it.
    #[test]
    fn a_first_message_beside_another_is_logged() {
        assert_eq!(KINDS.map(may_print_while_busy), [true; 4]);
    }

    /// A user could fill the log from namespaces of his, and hide what others need to see.
    #[test]
    fn connections_in_namespaces_of_users_log_nothing() {
        let limit = LogLimit::new(false);
        let may = KINDS.map(|about| limit.may_print(about));
        assert_eq!(may, [false; 4]);
    }

    #[test]
    fn floods_are_limited_in_all() {
        let connections = is_limited(40, || LogLimit::new(true).may_print(About::Failure));
        let programs = is_limited(10, || may_print(About::Program));
        assert_eq!((connections, programs), (true, true));
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
