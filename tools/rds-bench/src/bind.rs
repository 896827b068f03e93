// SPDX-License-Identifier: GPL-2.0
//! The cost of `bind()`, and of `close()` of a bound socket.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use rds_socket::RdsSocket;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use crate::measure::{once_each, Effort, Samples};

/// Binds sockets, created before, to `addr`'s address; the kernel chooses the ports.
pub(crate) fn binds(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    once_each(
        effort,
        || Ok(RdsSocket::new()?),
        |socket| Ok(socket.bind(addr)?),
    )
}

/// Closes sockets that are bound like those of [`binds`].
pub(crate) fn closes(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    closes_after(addr, effort, |_| Ok(()))
}

/// Closes such sockets after each has done `then`.
fn closes_after(
    addr: SocketAddr,
    effort: Effort,
    then: impl Fn(&RdsSocket) -> Result<()>,
) -> Result<Samples> {
    once_each(
        effort,
        || {
            let socket = RdsSocket::new()?;
            socket.bind(addr)?;
            then(&socket)?;
            Ok(Cell::new(Some(socket)))
        },
        |socket| {
            drop(socket.take());
            Ok(())
        },
    )
}

/// Returns an address of this network that no host has.
pub(crate) fn nobody(addr: Ipv4Addr) -> SocketAddr {
    let [a, b, c, _] = addr.octets();
    (Ipv4Addr::new(a, b, c, 200), 1000).into()
}

/// Closes sockets that have sent an empty message to an absent peer. The message is queued behind
/// `count` messages of another socket.
pub(crate) fn closes_behind(
    addr: SocketAddr,
    peer: SocketAddr,
    count: u32,
    effort: Effort,
) -> Result<Samples> {
    /// Upper limit for the size of an empty message.
    const EACH: usize = 1024;

    let other = RdsSocket::new()?;
    other.set_send_limit(EACH * count as usize)?;
    other.bind(addr)?;
    for _ in 0..count {
        other.send_to(&[], peer)?;
    }
    closes_after(addr, effort, |socket| {
        socket.send_to(&[], peer)?;
        Ok(())
    })
}

/// Binds a socket to a port and closes it. The kernel chooses from the `free` ports of an address;
/// the other ports are taken.
pub(crate) fn binds_of_few(free: RangeInclusive<u16>, effort: Effort) -> Result<Samples> {
    const FIRST_PORT: u16 = 2;

    let addr = Ipv4Addr::new(127, 0, 1, 1);
    allow_files(u32::from(u16::MAX))?;
    let _others = (FIRST_PORT..=u16::MAX)
        .filter(|port| !free.contains(port))
        .map(|port| Ok(RdsSocket::bound((addr, port).into())?))
        .collect::<Result<Vec<_>>>()?;
    once_each(
        effort,
        || Ok(Cell::new(Some(RdsSocket::new()?))),
        |socket| {
            let socket = socket.take().context("no socket")?;
            Ok(socket.bind((addr, 0).into())?)
        },
    )
}

fn allow_files(count: u32) -> Result<()> {
    let needed = Some(u64::from(count) + 10_000);
    let now = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: now.current.max(needed),
        maximum: now.maximum.max(needed),
    };
    setrlimit(Resource::Nofile, limit).context("cannot have more open files")
}

/// Returns `count` sockets that are bound to addresses of the loopback network.
pub(crate) fn many(count: u32) -> Result<Vec<RdsSocket>> {
    /// Sockets on one address.
    const EACH: u32 = 50_000;
    const FIRST_PORT: u32 = 1000;

    allow_files(count)?;
    (0..count)
        .map(|i| {
            let addr = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + i / EACH);
            let socket = RdsSocket::new()?;
            socket.bind((addr, (FIRST_PORT + i % EACH) as u16).into())?;
            Ok(socket)
        })
        .collect()
}
