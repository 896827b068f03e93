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

/// Judges a socket with `bytes` of unread messages and a receive limit of `limit` bytes.
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

/// What a socket takes in any case before [`is_overrun`], in bytes, on a node with `memory` bytes.
pub(crate) const fn patience(memory: u64) -> u64 {
    const LEAST: u64 = 32 << 20;
    if memory / 32 > LEAST {
        memory / 32
    } else {
        LEAST
    }
}

/// Whether so much waits to be read, more than `patience` bytes, that a peer can hardly be taking notice of
/// the congestion any more.
///
/// What its sockets had sent when they were told may still come, and every one of them may have a send
/// buffer full of it.
#[inline]
pub(crate) const fn is_overrun(bytes: u64, limit: u64, patience: u64) -> bool {
    bytes > patience && bytes / 4 > limit
}
