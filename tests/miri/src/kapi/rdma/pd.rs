// SPDX-License-Identifier: GPL-2.0

//! `kapi::rdma::pd`: a device and a domain.

use super::{device::IbDevice, domain::Domain};
use crate::{prelude::*, sync::Arc};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Pd {
    device: Arc<IbDevice>,
    domain: Arc<Domain>,
}

impl Pd {
    pub(super) fn new() -> Self {
        let device = IbDevice {
            references: AtomicUsize::new(0),
        };
        Self {
            device: Arc::new(device, GFP_KERNEL).unwrap(),
            domain: Arc::new(Domain::new(), GFP_KERNEL).unwrap(),
        }
    }

    pub(crate) fn device(&self) -> &IbDevice {
        &self.device
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        assert_eq!(self.device.references.load(Ordering::Acquire), 0);
    }
}
