// SPDX-License-Identifier: GPL-2.0

//! Limit on attempts to connect to peers that may be dead. These are the attempts of a user to
//! peers that have never answered, and attempts that only peers may need.
//!
//! An attempt to reach a dead peer takes seconds and leads nowhere. It makes several CM ids, each
//! of which takes the CM's global mutex a few times. If the next hop is known, it also makes a
//! queue pair with its receives, and on iWARP a thread waits for TCP. All users share that mutex,
//! the workqueue of the connections and the CPUs. So one user with thousands of dead peers would
//! delay the first connections of others.
//!
//! Therefore only some attempts of a user are in progress at a time. The other connections of that
//! user look again later. Attempts that peers answer take milliseconds, so their user hardly
//! notices the limit.
//!
//! First and repeated attempts have places of their own. So a peer that has not been tried yet does
//! not wait for those that were tried in vain. Peers that ask for a connection cause first
//! attempts, as often as they like. So those leave places to others that are tried again.

use super::connect::{
    Event,
    Machine, //
};

/// Number of attempts of a user, or for a group of peers, that may be in progress.
pub(crate) const MOST: usize = 128;

/// Number of repeated ones among these.
pub(crate) const MOST_REPEATED: usize = MOST / 2;

/// Number of first ones among these, if only peers may need them.
pub(crate) const MOST_ASKED: usize = MOST - MOST_REPEATED;

/// Range of the delay.
const SHORTEST_DELAY_MS: usize = 10;
const LONGEST_DELAY_MS: usize = 60_000;

/// Kind of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptKind {
    /// None for the connection has failed before, or the peer has just asked.
    First,
    /// The same, after it has found no place.
    Waited,
    /// One for the connection has failed before.
    Repeated,
}

impl AttemptKind {
    /// Returns the kind of the attempt that `event` begins. `for_peer`: only the peer may need it.
    pub(crate) fn of(machine: &Machine, event: Event, for_peer: bool) -> Self {
        if for_peer && event == Event::Wanted {
            // A peer that asks is alive, so it does not wait for those that are not.
            return Self::First;
        }
        match machine.has_failed() {
            true => Self::Repeated,
            false if for_peer && machine.waits_for_place() => Self::Waited,
            false => Self::First,
        }
    }
}

/// Place of an attempt in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptPlace {
    First,
    Repeated,
}

/// Numbers of attempts that are in progress and are limited together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    first: usize,
    repeated: usize,
}

impl Attempts {
    /// Returns `true` if none is in progress.
    pub(crate) const fn is_empty(self) -> bool {
        self.running() == 0
    }

    const fn running(self) -> usize {
        self.first.saturating_add(self.repeated)
    }

    fn at(&mut self, place: AttemptPlace) -> &mut usize {
        match place {
            AttemptPlace::First => &mut self.first,
            AttemptPlace::Repeated => &mut self.repeated,
        }
    }

    fn take(&mut self, place: AttemptPlace, most: usize) -> bool {
        let is_full = self.running() >= MOST;
        let count = self.at(place);
        let begins = !is_full && *count < most;
        *count = count.saturating_add(begins.into());
        begins
    }

    /// Begins an attempt, and returns its place. At most `most_first` attempts may have the places
    /// of first ones. Returns `None` if the attempt has to wait.
    pub(crate) fn begin(&mut self, kind: AttemptKind, most_first: usize) -> Option<AttemptPlace> {
        let first = (AttemptPlace::First, most_first);
        let repeated = (AttemptPlace::Repeated, MOST_REPEATED);
        let places: &[_] = match kind {
            AttemptKind::First => &[first],
            AttemptKind::Waited => &[first, repeated],
            AttemptKind::Repeated => &[repeated],
        };
        places
            .iter()
            .find_map(|&(place, most)| self.take(place, most).then_some(place))
    }

    /// Ends an attempt.
    pub(crate) fn end(&mut self, place: AttemptPlace) {
        let count = self.at(place);
        *count = count.saturating_sub(1);
    }
}

/// Returns the time in milliseconds after which a connection looks again whether its attempt may
/// begin. `connections` is the number of connections of the user that have never been up, or of
/// those that wait for a place.
///
/// The time grows with that number. So the connections of a user together look at most some 5,000
/// times per second for first attempts, and 700 times for repeated ones.
pub(crate) fn delay_ms(connections: usize, kind: AttemptKind) -> u32 {
    let delay = match kind {
        AttemptKind::Repeated => connections.saturating_mul(2),
        AttemptKind::First | AttemptKind::Waited => connections / 4,
    };
    let delay = delay.clamp(SHORTEST_DELAY_MS, LONGEST_DELAY_MS);
    u32::try_from(delay).unwrap_or(u32::MAX)
}
