// SPDX-License-Identifier: GPL-2.0

//! Rate limit for users whose operations a peer refuses.
//!
//! An operation with a wrong key ends the queue pair for all that share the connection, and so does
//! the next one. So a user with repeated refusals has to wait longer and longer before each
//! operation. The delay reflects the cost for the others, which go on meanwhile. It applies to
//! sockets that had an operation refused, and to new sockets only if many new ones had.
//!
//! All times are monotonic, in nanoseconds.

use super::SECOND;

/// Number of users with a record of their own. All others share one.
const USER_SLOTS: usize = 4;

/// Refusals of a user that cause no delay for sockets that had one.
const FREE: u32 = 4;

/// Refusals of new sockets that cause no delay for other new sockets.
const FREE_SOCKETS: u32 = 20;

/// Time after which one refusal is forgotten. In the long run no user has more than one per such
/// time.
const FORGETS: u64 = 4 * SECOND;

/// Highest number of refusals that is remembered.
const MOST: u32 = 40;

/// Shortest initial delay. The initial delay is the duration of the last outage, and doubles with
/// each further refusal.
const SHORTEST: u64 = SECOND / 500;

/// Longest wait of a caller before it checks again for a link, since nothing wakes it when there is
/// one.
const RECHECK: u64 = SECOND / 50;

/// Longest delay.
const LONGEST: u64 = 4 * SECOND;

/// Standing of a socket: the results of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its operations succeed.
    Good,
    /// None has succeeded yet, and none was refused.
    New,
    /// One was refused, and too few have succeeded since.
    Bad,
}

/// The time at which an operation was admitted. 0 if no refusal was remembered then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission(pub(crate) u64);

/// Refusals of one user.
#[derive(Clone, Copy, Debug)]
struct RefusalRecord {
    refused: u32,
    /// Number of `refused` that came from new sockets.
    first: u32,
    /// Time at which a refusal was last forgotten.
    since: u64,
    /// Time of the last refusal.
    refused_at: u64,
    /// Time of the last refusal if there has been no link since.
    failed_at: Option<u64>,
    /// Duration of the last outage.
    outage: u64,
    /// Time from which the next operation may go.
    next: u64,
}

impl RefusalRecord {
    const CLEAN: Self = Self {
        refused: 0,
        first: 0,
        since: 0,
        refused_at: 0,
        failed_at: None,
        outage: 0,
        next: 0,
    };

    /// Forgets old refusals.
    fn forget(&mut self, now: u64) {
        let count = now.saturating_sub(self.since) / FORGETS;
        self.since = self.since.saturating_add(count.saturating_mul(FORGETS));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.refused = self.refused.saturating_sub(count);
        self.first = self.first.saturating_sub(count);
    }

    /// Returns the delay before each operation of a socket.
    fn backoff(&self, standing: Standing) -> u64 {
        let shortest = self.outage.clamp(SHORTEST, LONGEST);
        let beyond = match standing {
            Standing::Good => None,
            Standing::New => self.first.checked_sub(FREE_SOCKETS.saturating_add(1)),
            Standing::Bad => self.refused.checked_sub(FREE.saturating_add(1)),
        };
        match beyond {
            None => 0,
            Some(doublings) => shortest
                .saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX))
                .min(LONGEST),
        }
    }

    fn note(&mut self, standing: Standing, now: u64) {
        self.forget(now);
        if self.refused == 0 {
            self.since = now;
        }
        self.refused = self.refused.saturating_add(1).min(MOST);
        if standing == Standing::New {
            self.first = self.first.saturating_add(1).min(MOST);
        }
        self.refused_at = now;
        self.failed_at = Some(now);
        if self.backoff(Standing::Bad) > 0 {
            // `recover()` replaces this when there is a link.
            self.next = now.saturating_add(LONGEST);
        }
    }

    fn recover(&mut self, now: u64) {
        if let Some(failed_at) = self.failed_at.take() {
            self.outage = now.saturating_sub(failed_at);
            self.next = now.saturating_add(self.backoff(Standing::Bad));
        }
    }
}

/// Users whose operations the peer of a connection has refused.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    users: [Option<(u32, RefusalRecord)>; USER_SLOTS],
    others: RefusalRecord,
    /// Bits of the users that share `others`; several users may have the same bit.
    others_bits: u64,
}

/// Returns the bit of a user in `others_bits`.
const fn bit_of(user: u32) -> u64 {
    // The six upper bits of a multiplicative hash.
    1 << (user.wrapping_mul(0x9e37_79b1) >> 26)
}

impl Faults {
    pub(crate) const fn new() -> Self {
        Self {
            users: [const { None }; USER_SLOTS],
            others: RefusalRecord::CLEAN,
            others_bits: 0,
        }
    }

    /// Returns the place of the user's record if it has one of its own.
    fn slot_of(&self, user: u32) -> Option<usize> {
        let mut users = self.users.iter();
        users.position(|slot| slot.is_some_and(|(it, _)| it == user))
    }

    /// Returns a place that is free, or whose user has no remembered refusals left.
    fn free_slot(&mut self, now: u64) -> Option<usize> {
        self.users.iter_mut().position(|slot| match slot {
            None => true,
            Some((_, record)) => {
                record.forget(now);
                record.refused == 0
            }
        })
    }

    /// Returns the record in a place, or the shared one.
    fn record(&mut self, slot: Option<usize>) -> &mut RefusalRecord {
        match slot.and_then(|at| self.users.get_mut(at)) {
            Some(Some((_, record))) => record,
            _ => &mut self.others,
        }
    }

    /// Notes that the peer has refused an operation of a user's socket, which had this `standing`.
    pub(crate) fn note(&mut self, user: u32, standing: Standing, now: u64) {
        let mut slot = self.slot_of(user);
        if slot.is_none() {
            slot = self.free_slot(now);
            if let Some(free) = slot.and_then(|at| self.users.get_mut(at)) {
                *free = Some((user, RefusalRecord::CLEAN));
            } else {
                self.others.forget(now);
                if self.others.refused == 0 {
                    self.others_bits = 0;
                }
                self.others_bits |= bit_of(user);
            }
        }
        self.record(slot).note(standing, now);
    }

    /// Notes that there is a link again.
    pub(crate) fn recover(&mut self, now: u64) {
        self.others.recover(now);
        for (_, record) in self.users.iter_mut().flatten() {
            record.recover(now);
        }
    }

    /// Returns `true` if all refusals are forgotten, so that no user has to wait.
    pub(crate) fn is_forgotten(&mut self, now: u64) -> bool {
        let users = self.users.iter_mut().flatten().map(|(_, record)| record);
        users.chain([&mut self.others]).all(|record| {
            record.forget(now);
            record.refused == 0
        })
    }

    /// Admits an operation of a user's socket.
    ///
    /// # Errors
    ///
    /// The time until the caller may try again, if the operation has to wait.
    pub(crate) fn admit(&mut self, user: u32, standing: Standing, now: u64) -> Result<(), u64> {
        let slot = self.slot_of(user);
        if slot.is_none() && self.others_bits & bit_of(user) == 0 {
            return Ok(());
        }
        let record = self.record(slot);
        record.forget(now);
        let backoff = record.backoff(standing);
        let wait = record.next.saturating_sub(now);
        if backoff == 0 {
            Ok(())
        } else if wait == 0 {
            record.next = now.saturating_add(backoff);
            Ok(())
        } else if record.failed_at.is_some() {
            Err(wait.min(RECHECK))
        } else {
            Err(wait)
        }
    }

    /// Returns `true` if an operation of a user's socket has to end. It was admitted before a
    /// refusal after which it would have had to wait.
    pub(crate) fn is_outdated(
        &mut self,
        user: u32,
        standing: Standing,
        admission: Admission,
        now: u64,
    ) -> bool {
        let slot = self.slot_of(user);
        if slot.is_none() && self.others_bits & bit_of(user) == 0 {
            return false;
        }
        let record = self.record(slot);
        record.forget(now);
        admission.0 < record.refused_at && record.backoff(standing) > 0
    }
}
