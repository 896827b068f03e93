// SPDX-License-Identifier: GPL-2.0

//! Local IP addresses of the initial network namespace.
//!
//! C headers: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

use crate::bindings;
use core::net::Ipv6Addr;
use kernel::prelude::*;

/// Classification of an address by the IP layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locality {
    /// Not a local address, or not yet: duplicate address detection of an IPv6 address may be
    /// pending.
    Elsewhere,
    /// Assigned to a network device. An [`AddressWatch`](super::AddressWatch) reports its removal.
    Assigned,
    /// Local by a route only; no network device has it. No notifier reports its removal.
    Routed,
}

/// Classifies an address.
///
/// An IPv4 address is passed in mapped form. A link-local address needs the index of its network
/// device as `scope`.
///
/// # Context
///
/// Any context.
pub(crate) fn locality(addr: Ipv6Addr, scope: u32) -> Locality {
    let locality = match addr.to_ipv4_mapped() {
        // SAFETY: The function reads four bytes.
        Some(v4) => unsafe { bindings::rds_rust_locality_v4(v4.octets().as_ptr()) },
        // SAFETY: The function reads sixteen bytes.
        None => unsafe { bindings::rds_rust_locality_v6(addr.octets().as_ptr(), scope) },
    };
    match locality {
        bindings::rds_locality_RDS_ADDR_ASSIGNED => Locality::Assigned,
        bindings::rds_locality_RDS_ADDR_ROUTED => Locality::Routed,
        _ => Locality::Elsewhere,
    }
}

/// Returns `true` if `addr`, an IPv4 address in mapped form, is a broadcast address.
///
/// # Context
///
/// Any context.
pub(crate) fn is_broadcast(addr: Ipv6Addr) -> bool {
    addr.to_ipv4_mapped().is_some_and(|v4| {
        // SAFETY: The function reads four bytes.
        unsafe { bindings::rds_rust_is_broadcast(v4.octets().as_ptr()) }
    })
}

/// Calls `f` for each address of a network device, at most `limit` times. The addresses and scopes
/// are as [`locality`] takes them. Addresses of the loopback device are left out.
///
/// # Errors
///
/// `ENOMEM` if there is no memory for the list.
///
/// # Context
///
/// May sleep; so may `f`.
pub(crate) fn for_each_assigned(limit: usize, mut f: impl FnMut(Ipv6Addr, u32)) -> Result {
    let mut found = KVVec::<bindings::rds_local_addr>::with_capacity(limit, GFP_KERNEL)?;
    // SAFETY: There is room for `limit` addresses.
    let count = unsafe {
        bindings::rds_rust_local_addrs(found.spare_capacity_mut().as_mut_ptr().cast(), limit)
    };
    // SAFETY: The function has initialised `count` addresses, which is at most `limit`.
    unsafe { found.inc_len(count) };
    for local in &found {
        f(Ipv6Addr::from(local.addr), local.scope);
    }
    Ok(())
}
