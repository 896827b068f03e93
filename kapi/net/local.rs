// SPDX-License-Identifier: GPL-2.0

//! The addresses of this machine, in the initial network namespace.
//!
//! C headers: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

use crate::bindings;
use core::net::Ipv6Addr;
use kernel::prelude::*;

/// What the IP layer makes of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locality {
    /// It is not ours, or not yet: an IPv6 address is not while other nodes may have it, too.
    Elsewhere,
    /// A network device has it. When it goes, an [`AddressWatch`](super::AddressWatch) hears of it.
    Assigned,
    /// No network device has it, but a route makes it ours. When that goes nobody hears of it.
    Routed,
}

/// Whether an address is ours; an IPv4 address as a mapped one, and a link-local one with the index
/// of its network device. Any context.
pub(crate) fn locality(addr: Ipv6Addr, scope: u32) -> Locality {
    let locality = match addr.to_ipv4_mapped() {
        // SAFETY: The function reads four bytes.
        Some(v4) => unsafe { bindings::rds_locality_v4(v4.octets().as_ptr()) },
        // SAFETY: The function reads sixteen bytes.
        None => unsafe { bindings::rds_locality_v6(addr.octets().as_ptr(), scope) },
    };
    match locality {
        bindings::rds_locality_RDS_ADDR_ASSIGNED => Locality::Assigned,
        bindings::rds_locality_RDS_ADDR_ROUTED => Locality::Routed,
        _ => Locality::Elsewhere,
    }
}

/// Whether an IPv4 address, which is a mapped one, leads to all hosts of a network. Any context.
pub(crate) fn is_broadcast(addr: Ipv6Addr) -> bool {
    addr.to_ipv4_mapped().is_some_and(|v4| {
        // SAFETY: The function reads four bytes.
        unsafe { bindings::rds_is_broadcast(v4.octets().as_ptr()) }
    })
}

/// Calls `f` for the addresses that network devices have, other than the loopback device, as
/// [`locality`] takes them: all of them, or the first `limit`. May sleep, and `f` may.
pub(crate) fn for_each_assigned(limit: usize, mut f: impl FnMut(Ipv6Addr, u32)) -> Result {
    let mut found = KVVec::<bindings::rds_local_addr>::with_capacity(limit, GFP_KERNEL)?;
    // SAFETY: There is room for `limit` addresses.
    let count =
        unsafe { bindings::rds_local_addrs(found.spare_capacity_mut().as_mut_ptr().cast(), limit) };
    // SAFETY: The function has filled in `count` of them, and those are not more than `limit`.
    unsafe { found.inc_len(count) };
    for local in &found {
        f(Ipv6Addr::from(local.addr), local.scope);
    }
    Ok(())
}
