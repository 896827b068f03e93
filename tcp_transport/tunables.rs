// SPDX-License-Identifier: GPL-2.0

//! Settings of this transport that root of the network namespace may change. Changes apply to new
//! connections.

use crate::{
    kapi::sysctl::{
        Entry,
        Setting,
        Settings, //
    },
    proto::mprds::PathCount, //
};
use kernel::prelude::*;

/// The settings in `/proc/sys/net/rds/tcp`, with the names that they have on C RDS.
pub(crate) struct TcpTunables {
    /// Sizes in bytes of the buffers of a socket. 0: TCP chooses and adapts the size. Sockets that
    /// wait for a connection have them, too, and anybody can fill those.
    sndbuf: Setting,
    rcvbuf: Setting,
    /// Most paths of a connection. The default is one, because C RDS connects all paths again at
    /// once when this node has restarted. Nothing tells then which of them is the first.
    max_paths: Setting,
}

impl TcpTunables {
    /// Creates the default settings.
    pub(crate) const fn new() -> Self {
        Self {
            sndbuf: Setting::new(0, 0..=c_int::MAX),
            rcvbuf: Setting::new(0, 0..=c_int::MAX),
            max_paths: Setting::new(1, 1..=8),
        }
    }

    /// Returns the sizes of the send and the receive buffer of a new connection.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn buffers(&self) -> (c_int, c_int) {
        (self.sndbuf.get(), self.rcvbuf.get())
    }

    /// Returns the most paths of a new connection: a power of 2.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn most_paths(&self) -> PathCount {
        // CAST: 1 to 8.
        PathCount::at_most(self.max_paths.get() as u16)
    }
}

impl Settings for TcpTunables {
    const PATH: &'static CStr = c"net/rds/tcp";

    fn each(&self) -> impl Iterator<Item = Entry<'_>> {
        [
            Entry::new(c"rds_tcp_sndbuf", &self.sndbuf),
            Entry::new(c"rds_tcp_rcvbuf", &self.rcvbuf),
            Entry::new(c"max_paths", &self.max_paths),
        ]
        .into_iter()
    }
}
