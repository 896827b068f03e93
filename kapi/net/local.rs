// SPDX-License-Identifier: GPL-2.0

//! Local IP addresses and ports.
//!
//! C headers: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

use super::{
    NetRef,
    NetUse, //
};
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

/// Classifies an address of a namespace.
///
/// # Safety
///
/// `net` must point to a live namespace.
unsafe fn locality_in(net: *mut bindings::net, addr: Ipv6Addr, scope: u32) -> Locality {
    let locality = match addr.to_ipv4_mapped() {
        // SAFETY: The namespace is alive, and the function reads four bytes.
        Some(v4) => unsafe { bindings::rds_rust_locality_v4(net, v4.octets().as_ptr()) },
        // SAFETY: The namespace is alive, and the function reads sixteen bytes.
        None => unsafe { bindings::rds_rust_locality_v6(net, addr.octets().as_ptr(), scope) },
    };
    match locality {
        bindings::rds_locality_RDS_ADDR_ASSIGNED => Locality::Assigned,
        bindings::rds_locality_RDS_ADDR_ROUTED => Locality::Routed,
        _ => Locality::Elsewhere,
    }
}

/// Returns `true` if the routes of a namespace have an IPv4 address in mapped form as broadcast.
///
/// # Safety
///
/// `net` must point to a live namespace.
unsafe fn is_broadcast_in(net: *mut bindings::net, addr: Ipv6Addr) -> bool {
    addr.to_ipv4_mapped().is_some_and(|v4| {
        // SAFETY: The namespace is alive, and the function reads four bytes.
        unsafe { bindings::rds_rust_is_broadcast(net, v4.octets().as_ptr()) }
    })
}

impl NetRef {
    /// Classifies an address. A namespace that has ended has none.
    ///
    /// An IPv4 address is passed in mapped form. A link-local address needs the index of its
    /// network device as `scope`.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn locality(&self, addr: Ipv6Addr, scope: u32) -> Locality {
        let Some(net) = self.enter() else {
            return Locality::Elsewhere;
        };
        // SAFETY: The namespace is alive as long as its use.
        unsafe { locality_in(net.as_raw(), addr, scope) }
    }

    /// Returns `true` if `addr`, an IPv4 address in mapped form, is a broadcast address.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_broadcast(&self, addr: Ipv6Addr) -> bool {
        self.enter().is_some_and(|net| {
            // SAFETY: The namespace is alive as long as its use.
            unsafe { is_broadcast_in(net.as_raw(), addr) }
        })
    }

    /// Calls `f` for each address of a network device, at most `limit` times. The addresses and
    /// scopes are as [`Self::locality`] takes them. Addresses of the loopback device are left out.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the namespace has ended.
    /// - `ENOMEM` if there is no memory for the list.
    ///
    /// # Context
    ///
    /// May sleep; so may `f`.
    pub(crate) fn for_each_assigned(
        &self,
        limit: usize,
        mut f: impl FnMut(Ipv6Addr, u32),
    ) -> Result {
        let mut found = KVVec::<bindings::rds_local_addr>::with_capacity(limit, GFP_KERNEL)?;
        let net = self.try_use()?;
        let room = found.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: The namespace is alive, and there is room for `limit` addresses.
        let count = unsafe { bindings::rds_rust_local_addrs(net.as_raw(), room, limit) };
        drop(net);
        // SAFETY: The function has initialised `count` addresses, which is at most `limit`.
        unsafe { found.inc_len(count) };
        for local in &found {
            f(Ipv6Addr::from(local.addr), local.scope);
        }
        Ok(())
    }
}

impl NetUse {
    /// Returns the first and the last port that TCP connections use.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn local_ports(&self) -> (u16, u16) {
        let (mut low, mut high) = (0, 0);
        // SAFETY: The namespace is alive. The function writes both numbers.
        unsafe { bindings::rds_rust_tcp_port_range(self.as_raw(), &mut low, &mut high) };
        (low, high)
    }

    /// Returns `true` if TCP connections must not use a port.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_reserved(&self, port: u16) -> bool {
        // SAFETY: The namespace is alive. The function only reads a setting.
        unsafe { bindings::rds_rust_tcp_is_reserved(self.as_raw(), port) }
    }
}
