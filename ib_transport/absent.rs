// SPDX-License-Identifier: GPL-2.0

//! The interface of this folder, in a module without RDMA.

#![deny(unsafe_code)]

use crate::{
    conn::{
        Node,
        Transports, //
    },
    kapi::net::NetRef,
    recv_pool::PoolShared, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// No settings.
pub(crate) struct RdmaFiles;

/// No listeners.
pub(crate) struct RdmaListeners;

/// No registrations.
pub(crate) struct RdmaDevices;

/// No service.
pub(crate) struct RdmaService;

impl RdmaService {
    pub(crate) fn end(&self) {}

    pub(crate) fn with(&self, transports: Transports) -> Transports {
        transports
    }
}

/// No transport.
pub(crate) struct Rdma;

impl Rdma {
    pub(crate) fn new(_: &NetRef, _: PoolShared) -> Result<Self> {
        Ok(Self)
    }

    pub(crate) fn with(&self, transports: Transports) -> Transports {
        transports
    }

    pub(crate) fn without(&self, transports: Transports) -> Transports {
        transports
    }

    pub(crate) fn serve(&self, _: NetRef) -> Result<RdmaService> {
        Ok(RdmaService)
    }

    pub(crate) fn register(&self) -> Result<RdmaDevices> {
        Ok(RdmaDevices)
    }

    pub(crate) fn listen(&self, _: &Arc<Node>) -> Result<RdmaListeners> {
        Ok(RdmaListeners)
    }

    pub(crate) fn start(&self) {}

    pub(crate) fn files(&self, _: &NetRef) -> Result<RdmaFiles> {
        Ok(RdmaFiles)
    }
}
