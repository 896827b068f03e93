// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Requests to reset a connection, which Oracle's kernels support: `struct rds_reset` and
//! `rds6_reset`.

use std::net::IpAddr;

const RDS_CONN_RESET: i32 = 8;
const RDS6_CONN_RESET: i32 = 11;

/// Returns the option and its value: the type of service, a gap, and the two addresses. `None`: the
/// addresses are of different families.
pub(crate) fn request(local: IpAddr, peer: IpAddr, tos: u8) -> Option<(i32, Vec<u8>)> {
    let head = [tos, 0, 0, 0];
    match (local, peer) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            let addresses = [local.octets(), peer.octets()].concat();
            Some((RDS_CONN_RESET, [&head[..], &addresses].concat()))
        }
        (IpAddr::V6(local), IpAddr::V6(peer)) => {
            let addresses = [local.octets(), peer.octets()].concat();
            Some((RDS6_CONN_RESET, [&head[..], &addresses].concat()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(local: &str, peer: &str) -> Option<(i32, Vec<u8>)> {
        request(local.parse().unwrap(), peer.parse().unwrap(), 4)
    }

    #[test]
    fn both_families_are_as_the_kernel_has_them() {
        let bytes = vec![4, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        assert_eq!(of("10.0.0.1", "10.0.0.2"), Some((8, bytes)));
        let (number, bytes) = of("fd00::1", "fd00::2").unwrap();
        assert_eq!((number, bytes.len(), bytes[0], bytes[35]), (11, 36, 4, 2));
        assert_eq!((bytes[4], bytes[19], bytes[20]), (0xfd, 1, 0xfd));
        assert_eq!(of("10.0.0.1", "fd00::2"), None);
    }
}
