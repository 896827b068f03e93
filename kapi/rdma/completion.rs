// SPDX-License-Identifier: GPL-2.0

//! Entries of a completion queue, and the messages that they report.

use super::{
    buf::BufMut,
    qp_ring::WrId, //
};
use crate::bindings;

/// A received message: the first `len` bytes of `buf`.
pub(crate) struct Received {
    pub(crate) buf: BufMut,
    /// Length in bytes. At most the size of the buffer.
    pub(crate) len: u32,
}

/// Returns `true` if fields other than the status and the work request's number are valid.
#[inline]
pub(super) fn succeeded(wc: &bindings::ib_wc) -> bool {
    wc.status == bindings::ib_wc_status_IB_WC_SUCCESS
}

/// Returns `true` if a receive contains a message. A peer with a local rkey can also use it up by a
/// write, which reports its own length, or by an invalidation. Immediate data is harmless.
#[inline]
pub(super) fn is_message(wc: &bindings::ib_wc) -> bool {
    const INVALIDATES: u32 = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
    // CAST: flags are small.
    let flags = wc.wc_flags as u32;
    succeeded(wc) && wc.opcode == bindings::ib_wc_opcode_IB_WC_RECV && flags & INVALIDATES == 0
}

/// Returns the work request of a completion.
#[inline]
pub(super) fn wr_id(wc: &bindings::ib_wc) -> WrId {
    // SAFETY: Both members of the union are integers of one size on all machines with RDMA.
    WrId::of(unsafe { wc.__bindgen_anon_1.wr_id })
}
