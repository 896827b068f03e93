// SPDX-License-Identifier: GPL-2.0

//! Limit on the memory of a pool.

use crate::kapi::sysctl::Setting;
use kernel::prelude::*;

/// Unit of the sysctl, in bytes: the fragment size of the first RDS version.
const UNIT: usize = 4096;

/// Maximum number of bytes for each pool of a group. Root may change it.
pub(crate) struct Limit(Setting);

impl Limit {
    /// Minimum of 2 MiB, in units: a message of the largest size, and the rings of a few
    /// connections.
    const LEAST: c_int = 512;

    /// Creates a limit of `bytes`, rounded down to whole units.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = c_int::try_from(bytes / UNIT).unwrap_or(c_int::MAX);
        Self(Setting::new(units, Self::LEAST..=c_int::MAX))
    }

    /// Returns the current limit.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn bytes(&self) -> usize {
        (self.0.count() as usize).saturating_mul(UNIT)
    }

    /// Returns the sysctl, in units of 4 KiB.
    pub(crate) fn setting(&self) -> &Setting {
        &self.0
    }
}
