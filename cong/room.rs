// SPDX-License-Identifier: GPL-2.0

//! Limits on the number of congestion maps.
//!
//! A map takes 8 KiB of memory that no program is charged for. Programs decide how many addresses
//! have full ports. So the number of maps is limited, and in the initial namespace also that of
//! each user.

use crate::kapi::sync::{
    Counted,
    SharedCount, //
};
use kernel::prelude::*;

/// Number of maps of a user, of a registry or of several.
pub(crate) type MapCount = SharedCount;

/// Room for maps, which several registries may share. Clones have the same room.
#[derive(Clone)]
pub(crate) struct MapRoom {
    used: MapCount,
    most: usize,
    most_of_one: usize,
    /// Each user leaves as many maps to others as he has.
    has_shares: bool,
}

impl MapRoom {
    /// Creates room for `most` maps, of which one registry may have `most_of_one`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Result<Self> {
        Ok(Self {
            used: MapCount::new()?,
            most,
            most_of_one,
            has_shares: false,
        })
    }

    /// Creates room for `most` maps of one registry. A user has at most as many of them as are left
    /// for others.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn with_shares(most: usize) -> Result<Self> {
        let mut room = Self::new(most, most)?;
        room.has_shares = true;
        Ok(room)
    }

    /// Returns the room for a namespace. Those of users leave half of it to those of root.
    pub(crate) fn of(&self, is_of_user: bool) -> Self {
        let mut room = self.clone();
        if is_of_user {
            room.most /= 2;
        }
        room
    }

    /// Takes the room of a map. `of_one` has the number of its registry, and `of_user` that of the
    /// user who needs it, if users have limits.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is none.
    pub(super) fn take(&self, of_one: &MapCount, of_user: Option<&MapCount>) -> Result<MapPlace> {
        let all = self.used.add(self.most).ok_or(ENOMEM)?;
        let of_one = of_one.add(self.most_of_one).ok_or(ENOMEM)?;
        let left = self.most.saturating_sub(self.used.get());
        let of_user = match of_user.filter(|_| self.has_shares) {
            Some(user) => Some(user.add(left).ok_or(ENOMEM)?),
            None => None,
        };
        Ok(MapPlace {
            _all: all,
            _of_one: of_one,
            _of_user: of_user,
        })
    }
}

/// Room of one map. Dropping it gives the room back.
pub(super) struct MapPlace {
    _all: Counted,
    _of_one: Counted,
    _of_user: Option<Counted>,
}
