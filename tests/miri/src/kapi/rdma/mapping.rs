// SPDX-License-Identifier: GPL-2.0

//! `kapi::rdma::mapping`: memory that is lent for operations.

use super::domain::Domain;
use crate::sync::Arc;
use std::sync::Mutex;

/// Memory that is mapped while this lives.
pub(crate) struct Mapping;

pub(crate) struct LocalDmaMapping {
    pub(super) domain: Arc<Domain>,
    /// `None` once the memory was taken back.
    pub(super) mapping: Mutex<Option<Arc<Mapping>>>,
}

impl LocalDmaMapping {
    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.lock().unwrap().clone()
    }
}
