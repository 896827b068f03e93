// SPDX-License-Identifier: GPL-2.0
//! The local address from which a peer is reached.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rds_socket::Error;

/// Returns the local address, with port 0, that the routing table prefers as source towards
/// `destination`.
///
/// Sends nothing: the `connect()` of a UDP socket only looks up the kernel's route.
pub fn source_address_for(destination: SocketAddr) -> Result<SocketAddr, Error> {
    // The discard port: the route does not depend on it, but it may not be 0.
    const ANY_PORT: u16 = 9;

    let lookup = || -> io::Result<SocketAddr> {
        let any: IpAddr = match destination {
            SocketAddr::V4(_) => [0u8; 4].into(),
            SocketAddr::V6(_) => [0u8; 16].into(),
        };
        let probe = UdpSocket::bind((any, 0))?;
        let mut target = destination;
        target.set_port(ANY_PORT);
        probe.connect(target)?;
        let mut source = probe.local_addr()?;
        source.set_port(0);
        Ok(source)
    };
    lookup().map_err(|e| Error::new(format!("find the source address for {destination}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_its_own_source() {
        let source = source_address_for("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(source, "127.0.0.1:0".parse().unwrap());
    }
}
