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
    /// Memory that they were copied to, and what else a message takes.
    pub(crate) copied: u64,
}

impl Unread {
    pub(crate) const fn total(self) -> u64 {
        self.in_buffers.saturating_add(self.copied)
    }
}

/// What a user is charged with for the messages that wait at one of his sockets.
///
/// Buffers are charged as they are. Copies are charged in steps of a few KiB, of which a socket keeps
/// one, or two, that it does not need: most come and go one by one, and each user has one account.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    taken: Unread,
    /// What is charged for copies: as much as they take, or more.
    for_copies: u64,
}

impl Charges {
    const STEP: u64 = 4 << 10;

    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self {
            taken: Unread {
                in_buffers: 0,
                copied: 0,
            },
            for_copies: 0,
        }
    }

    /// A message waits that takes `more`. Returns what is to be charged for it.
    #[inline]
    pub(crate) const fn add(&mut self, more: Unread) -> Unread {
        self.taken.in_buffers = self.taken.in_buffers.saturating_add(more.in_buffers);
        self.taken.copied = self.taken.copied.saturating_add(more.copied);
        let missing = self.taken.copied.saturating_sub(self.for_copies);
        let copied = missing.div_ceil(Self::STEP).saturating_mul(Self::STEP);
        self.for_copies = self.for_copies.saturating_add(copied);
        Unread {
            in_buffers: more.in_buffers,
            copied,
        }
    }

    /// A message that takes `less` does not wait any more. Returns what is not charged any more:
    /// everything, if nothing waits and `closely` says that memory is short.
    #[inline]
    pub(crate) const fn subtract(&mut self, less: Unread, closely: bool) -> Unread {
        self.taken.in_buffers = self.taken.in_buffers.saturating_sub(less.in_buffers);
        self.taken.copied = self.taken.copied.saturating_sub(less.copied);
        let spare = self.for_copies.saturating_sub(self.taken.copied);
        let copied = if closely && self.taken.copied == 0 {
            spare
        } else {
            let steps = spare.saturating_sub(Self::STEP) / Self::STEP;
            steps.saturating_mul(Self::STEP)
        };
        self.for_copies = self.for_copies.saturating_sub(copied);
        Unread {
            in_buffers: less.in_buffers,
            copied,
        }
    }

    /// Nothing waits any more. Returns what was charged.
    pub(crate) const fn take(&mut self) -> Unread {
        let all = Unread {
            in_buffers: self.taken.in_buffers,
            copied: self.for_copies,
        };
        *self = Self::new();
        all
    }
}

/// What is left of twice the `limit` of a pool, for copies.
const fn left_to_copy(all: Unread, limit: u64) -> u64 {
    limit.saturating_mul(2).saturating_sub(all.total())
}

/// Judges a user whose unread messages take `own`, and those of all users `all`, while a pool of
/// buffers may take `limit` bytes.
///
/// It goes by what is left: one user alone may keep half of the pool's limit in its buffers, one of
/// two a third; of N users each may keep one part of N + 1, and one is left. With what is copied it
/// is twice as much. Copies of one user take no buffers of another.
pub(crate) const fn usage(own: Unread, all: Unread, limit: u64) -> Usage {
    let left = limit.saturating_sub(all.in_buffers);
    let left_to_copy = left_to_copy(all, limit);
    if own.in_buffers <= left / 2 && own.copied <= left_to_copy / 2 {
        Usage::Small
    } else if own.in_buffers <= left {
        Usage::Tight
    } else if own.total() <= left_to_copy {
        Usage::Large
    } else {
        Usage::Full
    }
}

/// Whether a user, as above, gets a short message, which is copied in any case.
pub(crate) const fn takes_short(own: Unread, all: Unread, limit: u64) -> bool {
    own.copied <= left_to_copy(all, limit)
}

/// The receive limit of a socket of a user whose share is not small any more.
#[inline]
pub(crate) const fn tight_limit(limit: usize) -> usize {
    limit / 8
}
