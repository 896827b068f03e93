// SPDX-License-Identifier: GPL-2.0
//! The cost of `bind()`, and of `close()` of a socket that is bound.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use rds_socket::RdsSocket;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use crate::measure::{once_each, Effort, Samples};

/// Binds sockets, made before, to ports of `addr`'s address that the kernel chooses.
pub(crate) fn binds(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    once_each(
        effort,
        || Ok(RdsSocket::new()?),
        |socket| Ok(socket.bind(addr)?),
    )
}

/// Closes sockets that are bound like those of [`binds`].
pub(crate) fn closes(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    once_each(
        effort,
        || {
            let socket = RdsSocket::new()?;
            socket.bind(addr)?;
            Ok(Cell::new(Some(socket)))
        },
        |socket| {
            drop(socket.take());
            Ok(())
        },
    )
}

/// As many sockets that are bound to addresses of the loopback network.
pub(crate) fn many(count: u32) -> Result<Vec<RdsSocket>> {
    /// Sockets on one address.
    const EACH: u32 = 50_000;
    const FIRST_PORT: u32 = 1000;

    let needed = Some(u64::from(count) + 10_000);
    let now = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: now.current.max(needed),
        maximum: now.maximum.max(needed),
    };
    setrlimit(Resource::Nofile, limit).context("cannot have more open files")?;
    (0..count)
        .map(|i| {
            let addr = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + i / EACH);
            let socket = RdsSocket::new()?;
            socket.bind((addr, (FIRST_PORT + i % EACH) as u16).into())?;
            Ok(socket)
        })
        .collect()
}
