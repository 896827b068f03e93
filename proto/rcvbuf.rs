// SPDX-License-Identifier: GPL-2.0

//! When a socket that is not read fast enough counts as congested.

/// What changes for the port of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Nothing.
    None,
    /// Senders are to be held back.
    Congested,
    /// Senders may go on.
    Cleared,
}

/// Judges a socket with `bytes` of unread payload and a receive limit of `limit` bytes.
///
/// A port gets congested above the limit and stays so until less than half of the limit is used,
/// so that a slow reader does not cause a map update per message.
#[inline]
pub(crate) const fn transition(congested: bool, bytes: u64, limit: u64) -> Transition {
    if !congested && bytes > limit {
        Transition::Congested
    } else if congested && bytes < limit / 2 {
        Transition::Cleared
    } else {
        Transition::None
    }
}
