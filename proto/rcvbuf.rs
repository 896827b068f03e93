// SPDX-License-Identifier: GPL-2.0

//! Decides when a socket counts as congested because its program reads too slowly, and what a
//! user's unread messages may take.

/// Change of the congestion state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// No change.
    None,
    /// The port is congested: senders have to wait.
    Congested,
    /// The port is not congested any more: senders may go on.
    Cleared,
}

/// Compares `bytes` of unread messages at a socket with its receive limit of `limit` bytes.
///
/// A port becomes congested above the limit, and stays so until less than half of the limit is
/// used. Otherwise a slow reader would cause a map update per message.
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

/// Returns the bytes that a socket takes in any case before [`is_overrun`], on a node with `memory`
/// bytes.
pub(crate) const fn overrun_floor(memory: u64) -> u64 {
    const LEAST: u64 = 32 << 20;
    if memory / 32 > LEAST {
        memory / 32
    } else {
        LEAST
    }
}

/// Returns `true` if the peer can hardly be respecting the congestion any more: more than
/// `overrun_floor` bytes and four times `limit` are unread.
///
/// The factor is necessary because messages that the peer's sockets had sent before they were
/// notified still arrive. Each of those sockets may have a full send buffer.
#[inline]
pub(crate) const fn is_overrun(bytes: u64, limit: u64, overrun_floor: u64) -> bool {
    bytes > overrun_floor && bytes / 4 > limit
}

/// Share of the receive memory that a user's unread messages take. It decides about the next long
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Usage {
    /// The message keeps its receive buffers.
    Small,
    /// The message keeps its receive buffers, but the user's senders are held back earlier.
    Tight,
    /// The message is copied, so that its buffers can be reused.
    Large,
    /// The message is dropped.
    Full,
}

/// Memory of unread messages from other nodes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Pool buffers and packets in which the messages arrived.
    pub(crate) in_buffers: u64,
    /// Memory for copies, and for other parts of messages.
    pub(crate) copied: u64,
}

impl Unread {
    pub(crate) const fn total(self) -> u64 {
        self.in_buffers.saturating_add(self.copied)
    }
}

/// Charge to a user for the unread messages of one socket.
///
/// Buffers are charged exactly. Copies are charged in steps of a few KiB, and a socket keeps one or
/// two steps more than it needs. Most messages come and go one by one, and all sockets of a user
/// share one account. A socket without messages keeps a step, too, unless its user is charged
/// [`closely`].
#[derive(Debug)]
pub(crate) struct Charges {
    taken: Unread,
    /// Bytes charged for copies: at least as many as they take.
    for_copies: u64,
}

impl Charges {
    const STEP: u64 = 4 << 10;

    /// Creates the charge of a socket without messages.
    pub(crate) const fn new() -> Self {
        Self {
            taken: Unread {
                in_buffers: 0,
                copied: 0,
            },
            for_copies: 0,
        }
    }

    /// Adds an unread message that takes `more`. Returns the amount to charge to the user.
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

    /// Removes a message that takes `less`. Returns the amount to uncharge. If no copies are left,
    /// `closely` means that no spare step is kept.
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

    /// Removes all messages. Returns the amount that was charged.
    pub(crate) const fn take(&mut self) -> Unread {
        let all = Unread {
            in_buffers: self.taken.in_buffers,
            copied: self.for_copies,
        };
        *self = Self::new();
        all
    }
}

/// Returns the part of twice the `limit` of a pool that is left for copies.
const fn left_to_copy(all: Unread, limit: u64) -> u64 {
    limit.saturating_mul(2).saturating_sub(all.total())
}

/// Judges a user whose unread messages take `own`. Those of all users take `all`, and a pool of
/// buffers may take `limit` bytes.
///
/// The free part of the pool decides. A single user may keep half of the limit in buffers, and each
/// of two users a third. In general, N users may each keep one part of N + 1, and one part stays
/// free. With copies the total is twice as large. Copies of one user take no buffers from another.
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

/// Returns `true` if the user's sockets without messages may keep no more steps of a [`Charges`].
/// Parameters as for [`usage`].
///
/// A user may have hundreds of thousands of sockets. With what they keep the usage would not be
/// [`Usage::Small`] any more, although all messages were read, so ports would become congested
/// early. So all of them together keep at most a sixteenth of what has that effect.
pub(crate) const fn closely(own: Unread, all: Unread, limit: u64) -> bool {
    own.copied > left_to_copy(all, limit) / 32
}

/// Returns `true` if a user gets a short message, which is copied in any case. Parameters as for
/// [`usage`].
pub(crate) const fn takes_short(own: Unread, all: Unread, limit: u64) -> bool {
    own.copied <= left_to_copy(all, limit)
}

/// Returns the receive limit of a socket whose user's share is not small any more.
#[inline]
pub(crate) const fn tight_limit(limit: usize) -> usize {
    limit / 8
}
