// SPDX-License-Identifier: GPL-2.0
//! Connections to new peers.

use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::mark;
use crate::measure::{nanoseconds, Samples};
use crate::memory::Memory;
use crate::traffic::RdsPair;

/// A connection is idle after this time without traffic, and freed memory is available.
const IDLE: Duration = Duration::from_secs(5);

/// The costs of the new connections.
pub(crate) struct Peers {
    setup: Vec<f64>,
    memory: Memory,
}

impl Peers {
    /// Returns the nanoseconds from the first send to the arrival of the message.
    pub(crate) fn setup(&self) -> Samples {
        Samples {
            values: self.setup.clone(),
            marked: self.setup.len() as u64,
        }
    }

    /// Returns KiB for both ends of an idle connection; one number, the mean.
    pub(crate) fn memory(&self) -> Samples {
        Samples {
            values: vec![self.memory.all],
            marked: 0,
        }
    }

    /// Returns the part of that memory that is in slabs.
    pub(crate) fn slab(&self) -> Samples {
        Samples {
            values: vec![self.memory.slab],
            marked: 0,
        }
    }
}

/// Returns the address with the same host number in the `index`-th network: 10.9.0.1, 10.9.1.1,
/// 10.9.2.1.
pub(crate) fn beside(addr: Ipv4Addr, index: u8) -> Ipv4Addr {
    let [a, b, c, d] = addr.octets();
    Ipv4Addr::new(a, b, c.wrapping_add(index), d)
}

/// Connects pairs of sockets that have no connection yet, one after the other.
pub(crate) fn connect(pairs: &[RdsPair]) -> Result<Peers> {
    sleep(IDLE);
    let mut setup = Vec::with_capacity(pairs.len());
    let before = Memory::now()?;
    mark::start();
    for pair in pairs {
        let start = Instant::now();
        pair.connect()?;
        setup.push(nanoseconds(start.elapsed()));
    }
    mark::stop();
    sleep(IDLE);
    let memory = Memory::now()?.each_since(before, pairs.len());
    Ok(Peers { setup, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_peers() {
        let addr = Ipv4Addr::new(10, 9, 0, 2);
        assert_eq!(beside(addr, 3), Ipv4Addr::new(10, 9, 3, 2));
    }
}
