// SPDX-License-Identifier: GPL-2.0

//! Everything that the sockets of this node share.

use super::{Binds, Counter, Stats};
use crate::cong;
use crate::kapi::net::Net;
use crate::msg::{Bound, TransportId};
use kernel::{prelude::*, sync::Arc};

/// This node: made when the module is loaded, gone when nothing uses it any more.
pub(crate) struct Node {
    pub(crate) stats: Stats,
    pub(crate) binds: Binds,
    /// The congestion maps of the addresses of this node.
    pub(crate) cong: cong::Registry,
}

impl Node {
    /// May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let stats = Stats::new()?;
        let binds = Binds::new()?;
        Ok(Arc::new(
            Self {
                stats,
                binds,
                cong: cong::Registry::new()?,
            },
            GFP_KERNEL,
        )?)
    }
}

impl Node {
    /// A port of this node is full, or not any more: tells the peers. Any context, no lock held.
    pub(crate) fn announce_congestion(&self, net: Net, bound: &Bound, full: bool) {
        if bound.transport == TransportId::Loop {
            return;
        }
        match self.cong.mark(net, bound.addr, bound.port, full) {
            Ok(true) => self.stats.inc(Counter::CongUpdateQueued),
            Ok(false) => {}
            Err(_) => self.stats.inc(Counter::CongUpdateFailed),
        }
    }
}
