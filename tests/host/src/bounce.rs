// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/bounce.rs`: shares of users in the bounce buffers of operations.
//!
//! An operation to a dead peer never ends by itself. So in most of these tests nothing is released.

use crate::proto::bounce::may_bounce;
use proptest::prelude::*;

const LIMIT: usize = 8 << 20;
const MIB: usize = 1 << 20;

/// Bytes that operations of each user hold.
struct Users([usize; 6]);

impl Users {
    fn held(&self) -> usize {
        self.0.iter().sum()
    }

    /// Begins an operation if there is room.
    fn begin(&mut self, user: usize, bytes: usize) -> bool {
        let begins = may_bounce(self.0[user], self.held(), LIMIT);
        if begins {
            self.0[user] += bytes;
        }
        begins
    }

    /// Begins operations until there is no room. Returns the bytes of the user.
    fn fill(&mut self, user: usize, bytes: usize) -> usize {
        while self.begin(user, bytes) {}
        self.0[user]
    }
}

/// `Documentation/security.md` has these numbers.
#[test]
fn users_leave_as_much_as_they_have() {
    let mut users = Users([0; 6]);
    let held = [0, 1, 2, 3, 4, 5].map(|user| users.fill(user, MIB) / MIB);
    assert_eq!(held, [4, 2, 1, 1, 0, 0]);
    // What one of them releases, another one may have.
    users.0[0] = 0;
    assert_eq!(users.fill(4, MIB), 2 * MIB);
    assert_eq!(users.fill(5, MIB), MIB);
}

#[test]
fn small_operations_leave_room_to_others() {
    let mut users = Users([0; 6]);
    for user in 0..6 {
        let left = LIMIT - users.held();
        assert_eq!(users.fill(user, 4096), left / 2, "{user}");
    }
}

#[test]
fn one_operation_may_exceed_the_limit() {
    let mut users = Users([0; 6]);
    assert!(users.begin(0, 2 * LIMIT));
    assert!(!users.begin(0, 4096) && !users.begin(1, 4096));
    users.0[0] = 0;
    users.begin(1, LIMIT - 4096);
    assert!(users.begin(0, LIMIT));
}

proptest! {
    /// Operations of any size that begin in any order exceed the limit by less than one of them.
    #[test]
    fn the_limit_is_exceeded_by_one_operation(
        steps in prop::collection::vec((0usize..6, 1..2 * MIB, any::<bool>()), 0..200),
    ) {
        let mut users = Users([0; 6]);
        for (user, bytes, ends) in steps {
            if ends {
                users.0[user] = users.0[user].saturating_sub(bytes);
                continue;
            }
            let (own, left) = (users.0[user], LIMIT.saturating_sub(users.held()));
            let begins = users.begin(user, bytes);
            // Nobody waits who has nothing while there is room.
            prop_assert!(begins || own > 0 || left == 0);
            prop_assert!(!begins || own < left);
            prop_assert!(users.held() < LIMIT + 2 * MIB);
        }
    }
}
