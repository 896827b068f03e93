// SPDX-License-Identifier: GPL-2.0
//! Connections to peers that there was no connection to before.

use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::mark;
use crate::measure::{nanoseconds, Samples};
use crate::memory::free_kib;
use crate::traffic::RdsPair;

/// After this time without traffic a connection is idle, and what was freed is free.
const IDLE: Duration = Duration::from_secs(5);

/// What the new connections took.
pub(crate) struct Peers {
    setup: Vec<f64>,
    kib: f64,
}

impl Peers {
    /// Nanoseconds from the first send to the arrival of the message.
    pub(crate) fn setup(&self) -> Samples {
        Samples {
            values: self.setup.clone(),
            marked: self.setup.len() as u64,
        }
    }

    /// KiB for both ends of an idle connection; one number, the mean.
    pub(crate) fn memory(&self) -> Samples {
        Samples {
            values: vec![self.kib],
            marked: 0,
        }
    }
}

/// Connects `count` pairs of addresses, those after `local` and those after `remote`: third byte one
/// higher, last byte from 1.
pub(crate) fn connect(local: Ipv4Addr, remote: Ipv4Addr, count: u8) -> Result<Peers> {
    let pairs = (1..=count)
        .map(|i| RdsPair::new((beside(local, i), 0).into(), (beside(remote, i), 0).into()))
        .collect::<Result<Vec<_>>>()?;
    sleep(IDLE);
    let mut setup = Vec::with_capacity(pairs.len());
    let before = free_kib()?;
    mark::start();
    for pair in &pairs {
        let start = Instant::now();
        pair.connect()?;
        setup.push(nanoseconds(start.elapsed()));
    }
    mark::stop();
    sleep(IDLE);
    let after = free_kib()?;
    let kib = (before as f64 - after as f64) / pairs.len() as f64;
    Ok(Peers { setup, kib })
}

/// The `index`-th address in the same place of another network: 10.9.0.1, 10.9.1.1, 10.9.2.1.
fn beside(addr: Ipv4Addr, index: u8) -> Ipv4Addr {
    let [a, b, c, d] = addr.octets();
    Ipv4Addr::new(a, b, c.wrapping_add(index), d)
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
