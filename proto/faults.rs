// SPDX-License-Identifier: GPL-2.0

//! Pace of users whose operations a peer refuses.
//!
//! An operation with a wrong key ends the queue pair, for all who share the connection, and so does the
//! next one. So a user who does that again and again has to wait longer and longer before each
//! operation, by what it costs the others, who go on meanwhile. It is the sockets that had one refused
//! that wait, and those that are new only if many new ones had. All times are in nanoseconds on a clock
//! that does not go back.

use super::SECOND;

/// Users that are told apart. What others do is counted together.
const PLACES: usize = 4;

/// Refusals that cost the sockets that had one no time.
const FREE: u32 = 4;

/// Refusals of sockets that had none that cost new sockets no time.
const FREE_SOCKETS: u32 = 20;

/// One refusal is forgotten in this time, so in the long run no user has more than that.
const FORGETS: u64 = 4 * SECOND;

/// Refusals that are remembered.
const MOST: u32 = 40;

/// How long a user has to wait at first: for as long as there was no link, but for this at least. It doubles.
const SHORTEST: u64 = SECOND / 500;

/// How long a caller waits at the most before it looks whether there is a link again, as nobody tells.
const LOOKS: u64 = SECOND / 50;

/// How long a user has to wait at the most.
const LONGEST: u64 = 4 * SECOND;

/// How the operations of a socket have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// They go well.
    Good,
    /// None has gone well yet, and none was refused.
    New,
    /// One was refused, and too few have gone well since.
    Bad,
}

/// What a user has done.
#[derive(Clone, Copy, Debug)]
struct Record {
    refused: u32,
    /// Those of new sockets among them.
    first: u32,
    /// When one of them was forgotten the last time.
    since: u64,
    /// When the last one was, if there has been no link since.
    broke: Option<u64>,
    /// For how long there was none the last time.
    outage: u64,
    /// When the next operation may go.
    next: u64,
}

impl Record {
    const CLEAN: Self = Self {
        refused: 0,
        first: 0,
        since: 0,
        broke: None,
        outage: 0,
        next: 0,
    };

    /// Forgets what is long ago.
    fn forget(&mut self, now: u64) {
        let count = now.saturating_sub(self.since) / FORGETS;
        self.since = self.since.saturating_add(count.saturating_mul(FORGETS));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.refused = self.refused.saturating_sub(count);
        self.first = self.first.saturating_sub(count);
    }

    /// How long each operation of a socket has to wait.
    fn pace(&self, standing: Standing) -> u64 {
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
        self.broke = Some(now);
        if self.pace(Standing::Bad) > 0 {
            // Or until there is a link.
            self.next = now.saturating_add(LONGEST);
        }
    }

    fn recover(&mut self, now: u64) {
        if let Some(broke) = self.broke.take() {
            self.outage = now.saturating_sub(broke);
            self.next = now.saturating_add(self.pace(Standing::Bad));
        }
    }
}

/// The users whose operations the peer of a connection has refused.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    users: [Option<(u32, Record)>; PLACES],
    others: Record,
    /// A bit for each of the others, which a few users share.
    among_others: u64,
}

/// The bit of a user among the others.
const fn bit_of(user: u32) -> u64 {
    // The six upper bits of a multiplicative hash.
    1 << (user.wrapping_mul(0x9e37_79b1) >> 26)
}

impl Faults {
    pub(crate) const fn new() -> Self {
        Self {
            users: [const { None }; PLACES],
            others: Record::CLEAN,
            among_others: 0,
        }
    }

    /// The place of a user who has one.
    fn place_of(&self, user: u32) -> Option<usize> {
        let mut users = self.users.iter();
        users.position(|place| place.is_some_and(|(it, _)| it == user))
    }

    /// A place that is free, or that of a user who has done nothing for long.
    fn free_place(&mut self, now: u64) -> Option<usize> {
        self.users.iter_mut().position(|place| match place {
            None => true,
            Some((_, record)) => {
                record.forget(now);
                record.refused == 0
            }
        })
    }

    /// What is in a place, or counts for users without one.
    fn record(&mut self, place: Option<usize>) -> &mut Record {
        match place.and_then(|at| self.users.get_mut(at)) {
            Some(Some((_, record))) => record,
            _ => &mut self.others,
        }
    }

    /// The peer has refused an operation of a user's socket, of which this was the standing.
    pub(crate) fn note(&mut self, user: u32, standing: Standing, now: u64) {
        let mut place = self.place_of(user);
        if place.is_none() {
            place = self.free_place(now);
            if let Some(free) = place.and_then(|at| self.users.get_mut(at)) {
                *free = Some((user, Record::CLEAN));
            } else {
                self.others.forget(now);
                if self.others.refused == 0 {
                    self.among_others = 0;
                }
                self.among_others |= bit_of(user);
            }
        }
        self.record(place).note(standing, now);
    }

    /// There is a link again.
    pub(crate) fn recover(&mut self, now: u64) {
        self.others.recover(now);
        for (_, record) in self.users.iter_mut().flatten() {
            record.recover(now);
        }
    }

    /// Whether all is forgotten, so that nobody has to wait.
    pub(crate) fn is_forgotten(&mut self, now: u64) -> bool {
        let users = self.users.iter_mut().flatten().map(|(_, record)| record);
        users.chain([&mut self.others]).all(|record| {
            record.forget(now);
            record.refused == 0
        })
    }

    /// Whether an operation of a user's socket may go now; if not, how long to wait until it may ask again.
    pub(crate) fn turn(&mut self, user: u32, standing: Standing, now: u64) -> Result<(), u64> {
        let place = self.place_of(user);
        if place.is_none() && self.among_others & bit_of(user) == 0 {
            return Ok(());
        }
        let record = self.record(place);
        record.forget(now);
        let pace = record.pace(standing);
        let wait = record.next.saturating_sub(now);
        if pace == 0 {
            Ok(())
        } else if wait == 0 {
            record.next = now.saturating_add(pace);
            Ok(())
        } else if record.broke.is_some() {
            Err(wait.min(LOOKS))
        } else {
            Err(wait)
        }
    }
}
