// SPDX-License-Identifier: GPL-2.0

//! Limit on the memory of a pool.

use crate::kapi::{
    sync::ReadOnce,
    sysctl::Setting, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Unit of the sysctl, in bytes: the fragment size of the first RDS version.
const UNIT: usize = 4096;

/// Maximum number of bytes for each pool of a group. Root may change it.
pub(crate) struct Limit {
    setting: Setting,
    /// Maximum for a pool with bounce buffers, in bytes. It applies while there are `bounced`.
    bounce_limit: Atomic<usize>,
    /// Number of devices with such pools.
    bounced: Atomic<usize>,
}

impl Limit {
    /// Minimum of 2 MiB, in units: a message of the largest size, and the rings of a few
    /// connections.
    const LEAST: c_int = 512;

    /// Creates a limit of `bytes`, rounded down to whole units.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = c_int::try_from(bytes / UNIT).unwrap_or(c_int::MAX);
        Self {
            setting: Setting::new(units, Self::LEAST..=c_int::MAX),
            bounce_limit: Atomic::new(usize::MAX),
            bounced: Atomic::new(0),
        }
    }

    /// Returns the current limit.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn bytes(&self) -> usize {
        (self.setting.count() as usize).saturating_mul(UNIT)
    }

    /// Returns the limit from which shares of users follow, in bytes.
    ///
    /// Users share the pools of all devices. So this is the size that even the pools of a device
    /// with bounce buffers may have, if there is such a device.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn shared_bytes(&self) -> usize {
        match self.bounced.read_once() {
            0 => self.bytes(),
            _ => self.bytes().min(self.bounce_limit.read_once()),
        }
    }

    /// Notes a device whose pools may have `bytes` because of bounce buffers. On x86-64 this
    /// number is the same for all devices.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn lower(self: &Arc<Self>, bytes: usize) -> LoweredLimit {
        self.bounce_limit.store(bytes, Relaxed);
        self.bounced.fetch_add(1, Relaxed);
        LoweredLimit(self.clone())
    }

    /// Returns the sysctl, in units of 4 KiB.
    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }
}

/// Lowers the limit from which shares of users follow, as long as it exists.
pub(crate) struct LoweredLimit(Arc<Limit>);

impl Drop for LoweredLimit {
    fn drop(&mut self) {
        self.0.bounced.fetch_sub(1, Relaxed);
    }
}
