// SPDX-License-Identifier: GPL-2.0

//! The interface of this folder, in a module without TCP. No namespace has TCP, so most of these
//! types have no values.

#![deny(unsafe_code)]

use crate::{
    conn::{
        Node,
        Transport, //
    },
    kapi::{
        net::{
            IpBits,
            Net,
            NetRef, //
        },
        sysctl::{
            Entry,
            Settings, //
        }, //
    },
    recv_pool::PoolShared,
    socket::TransportId, //
};
use core::iter;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The settings of a namespace.
pub(crate) struct TcpTunables;

impl TcpTunables {
    pub(crate) const fn new() -> Self {
        Self
    }
}

impl Settings for TcpTunables {
    const PATH: &'static CStr = c"net/rds/tcp";

    fn each(&self) -> impl Iterator<Item = Entry<'_>> {
        iter::empty()
    }
}

/// The state of all namespaces.
pub(crate) enum TcpShared {}

impl TcpShared {
    pub(crate) fn if_wanted(_: PoolShared) -> Result<Option<Arc<Self>>> {
        Ok(None)
    }
}

/// The transport of a namespace.
pub(crate) enum Tcp {}

impl Tcp {
    pub(crate) fn new(shared: &TcpShared, _: NetRef, _: Arc<TcpTunables>) -> Result<Arc<Self>> {
        match *shared {}
    }
}

impl Transport for Tcp {
    fn id(&self) -> TransportId {
        match *self {}
    }

    fn claims(&self, _: Net, _: IpBits, _: u32) -> Result<bool> {
        match *self {}
    }
}

/// The listener of a namespace.
pub(crate) enum TcpListener {}

impl TcpListener {
    pub(crate) fn new(_: &Arc<Node>, transport: &Tcp) -> Result<Self> {
        match *transport {}
    }
}
