// SPDX-License-Identifier: GPL-2.0

//! Shares of users in the bounce buffers of operations.

/// Returns `true` if a user whose operations hold `own` bytes of bounce buffers may begin another
/// one. Operations of all users hold `all` bytes, and have room until they hold `limit`.
///
/// A user gets more only while he has less than he leaves to others. So one user alone cannot keep
/// others waiting. The size of the operation does not count. Otherwise small operations could keep
/// a large one waiting forever. So one operation may exceed the limit.
pub(crate) const fn may_bounce(own: usize, all: usize, limit: usize) -> bool {
    let left = limit.saturating_sub(all);
    left > 0 && (own == 0 || own < left)
}
