// SPDX-License-Identifier: GPL-2.0

//! How much memory a pool may take.

use crate::kapi::sysctl::Setting;
use kernel::prelude::*;

/// Bytes of the unit in which root sets it: the fragments of the first version of RDS.
const UNIT: usize = 4096;

/// The most bytes that each of some pools may take, which root may change.
pub(crate) struct Limit(Setting);

impl Limit {
    /// What a message of the largest size takes, and the rings of a few connections: 2 MiB, in units.
    const LEAST: c_int = 512;

    /// So many bytes at first, in whole units.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = c_int::try_from(bytes / UNIT).unwrap_or(c_int::MAX);
        Self(Setting::new(units, Self::LEAST..=c_int::MAX))
    }

    /// What it is now, in bytes. Any context.
    pub(crate) fn bytes(&self) -> usize {
        (self.0.count() as usize).saturating_mul(UNIT)
    }

    /// The same in units of 4 KiB, for root to change.
    pub(crate) fn setting(&self) -> &Setting {
        &self.0
    }
}
