// SPDX-License-Identifier: GPL-2.0

//! Time for which periodic checks have seen the same value.
//!
//! The code that changes the value pays nothing for the checks.

/// A value that periodic checks compare, and the time of the first check that saw it.
#[derive(Clone, Debug)]
pub(super) struct Unchanged<T>(Option<(T, u64)>);

impl<T: Copy + PartialEq> Unchanged<T> {
    /// Creates the state before the first check.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Returns `true` if the last check saw `value`.
    pub(super) fn is(&self, value: &T) -> bool {
        self.0.is_some_and(|(last, _)| last == *value)
    }

    /// Notes the value of a check at `now`. Returns the time for which the value is unchanged, in
    /// the unit of `now`. `None` if the previous check saw another one, or there was none.
    pub(super) fn observe(&mut self, value: T, now: u64) -> Option<u64> {
        match self.0 {
            Some((last, since)) if last == value => Some(now.saturating_sub(since)),
            _ => {
                self.0 = Some((value, now));
                None
            }
        }
    }
}
