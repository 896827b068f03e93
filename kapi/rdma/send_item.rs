// SPDX-License-Identifier: GPL-2.0

//! Sends of buffers.

use super::{
    buf::Buf,
    domain::Domain, //
};

/// A send of the first `len` bytes of `buf`; `len` is at least 1.
pub(crate) struct SendItem {
    pub(crate) buf: Buf,
    pub(crate) len: u32,
    /// Sets `IB_SEND_SOLICITED`: the receiver's device raises a solicited event.
    pub(crate) solicited: bool,
    /// Sets `IB_SEND_FENCE`: earlier reads and atomics are complete before this send begins.
    pub(crate) fence: bool,
}

impl SendItem {
    /// Returns the address of the bytes for a device of `domain`. `None` if `len` is 0 or too
    /// large, or if the buffer is not mapped for the domain.
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        // Some devices take a length of zero as 2 GiB.
        if self.len as usize > self.buf.capacity() || self.len == 0 {
            return None;
        }
        self.buf.address(domain)
    }
}
