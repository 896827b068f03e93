// SPDX-License-Identifier: GPL-2.0
//! The cost of `bind()`.

use std::net::SocketAddr;

use anyhow::Result;
use rds_socket::RdsSocket;

use crate::measure::{once_each, Effort, Samples};

/// Binds sockets, made before, to ports of `addr`'s address that the kernel chooses.
pub(crate) fn binds(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    once_each(
        effort,
        || Ok(RdsSocket::new()?),
        |socket| Ok(socket.bind(addr)?),
    )
}
