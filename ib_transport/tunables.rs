// SPDX-License-Identifier: GPL-2.0

//! What root may set of this transport while the module is loaded.

use crate::kapi::sysctl::{Setting, Settings};
use kernel::prelude::*;

/// The settings in `/proc/sys/net/rds/ib`.
pub(crate) struct Tunables {
    /// Whether new connections want their flow controlled where the device does not need it: 0 or 1.
    pub(super) flow_control: Setting,
}

impl Tunables {
    /// As they are when the module is loaded.
    pub(crate) const fn new() -> Self {
        Self {
            flow_control: Setting::new(0, 0..=1),
        }
    }
}

impl Settings for Tunables {
    const PATH: &'static CStr = c"net/rds/ib";

    fn each(&self) -> impl Iterator<Item = (&'static CStr, &Setting)> {
        [(c"flow_control", &self.flow_control)].into_iter()
    }
}
