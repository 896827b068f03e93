// SPDX-License-Identifier: GPL-2.0

//! Roles of two nodes that connect by TCP.
//!
//! Only the node with the lower address makes connections that carry messages. The other one
//! connects to wake it up, and that connection carries nothing: the lower node resets it and
//! connects itself. So there is no duel. The port from which a node connects has the index of the
//! path in its lowest bits.
//!
//! Ownership: none, these are functions of numbers. Errors: none.

use core::net::Ipv6Addr;

/// Number of ports with the same group, one for each path of a connection.
const GROUP: u16 = 8;

/// Purpose of an incoming connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It carries messages.
    Carry,
    /// The peer has something to send, and asks this node to connect.
    WakeUp,
}

/// Returns the purpose of a connection that the peer makes.
pub(crate) fn purpose(local: Ipv6Addr, peer: Ipv6Addr) -> Purpose {
    if peer < local {
        Purpose::Carry
    } else {
        Purpose::WakeUp
    }
}

/// Returns attempt number `attempt` at a port for the path with this index, from `low` to `high`.
/// `None` if all were tried, or there are none. The first one depends on `random`.
pub(crate) fn port(low: u16, high: u16, index: u8, random: u32, attempt: u32) -> Option<u16> {
    let above = u16::from(index).wrapping_sub(low) % GROUP;
    let first = low.checked_add(above)?;
    let groups = u32::from(high.checked_sub(first)?)
        .checked_div(GROUP.into())?
        .checked_add(1)?;
    if attempt >= groups {
        return None;
    }
    let group = random.wrapping_add(attempt).checked_rem(groups)?;
    let offset = group.checked_mul(GROUP.into())?;
    first.checked_add(u16::try_from(offset).ok()?)
}

/// Returns the index of the path that a peer connects from `port`.
pub(crate) const fn path_of(port: u16) -> u8 {
    // CAST: less than 8.
    (port % GROUP) as u8
}
