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

/// The part of the receive memory that a user's unread messages take, which decides on the next
/// long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Usage {
    /// It keeps the buffers that it came in.
    Small,
    /// The same, but the user's senders are held back earlier.
    Tight,
    /// It is copied, so that its buffers can be used again.
    Large,
    /// It is dropped.
    Full,
}

/// The memory that unread messages from other nodes take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Buffers of a pool, that they came in.
    pub(crate) in_buffers: u64,
    /// Memory that they were copied to.
    pub(crate) copied: u64,
}

impl Unread {
    pub(crate) const fn total(self) -> u64 {
        self.in_buffers.saturating_add(self.copied)
    }
}

/// Judges a user whose unread messages take `own`, and those of all users `all`, while a pool of
/// buffers may take `limit` bytes.
///
/// It goes by what is left: one user alone may keep half of the pool's limit in its buffers, one of
/// two a third; of N users each may keep one part of N + 1, and one is left. With what is copied it
/// is twice as much. Copies of one user take no buffers of another.
pub(crate) const fn usage(own: Unread, all: Unread, limit: u64) -> Usage {
    let left = limit.saturating_sub(all.in_buffers);
    let left_to_copy = limit.saturating_mul(2).saturating_sub(all.total());
    if own.in_buffers <= left / 2 {
        Usage::Small
    } else if own.in_buffers <= left {
        Usage::Tight
    } else if own.total() <= left_to_copy {
        Usage::Large
    } else {
        Usage::Full
    }
}

/// The receive limit of a socket of a user whose share is not small any more.
#[inline]
pub(crate) const fn tight_limit(limit: usize) -> usize {
    limit / 8
}
