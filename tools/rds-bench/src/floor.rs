// SPDX-License-Identifier: GPL-2.0
//! The cost of the same in the kernel without RDS: a lower limit for any socket.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Result;
use rustix::net::{bind, socket, AddressFamily, SocketType};
use rustix::process::getppid;

use crate::measure::{once_each, repeat, Effort, Samples};

/// A system call that does next to nothing.
pub(crate) fn empty_call(effort: Effort) -> Result<Samples> {
    repeat(effort, 1, || {
        black_box(getppid());
        Ok(())
    })
}

/// `bind()` of a UDP socket to a port that the kernel chooses.
pub(crate) fn udp_bind(effort: Effort) -> Result<Samples> {
    let any_port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    once_each(
        effort,
        || Ok(socket(AddressFamily::INET, SocketType::DGRAM, None)?),
        |socket| Ok(bind(socket, &any_port)?),
    )
}
