// SPDX-License-Identifier: GPL-2.0

//! Bytes of a stream that stay in the packet in which they arrived.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
//!
//! # Ownership
//!
//! A [`PacketPart`] is a reference to the data of a packet, which others only read. It holds the
//! memory of the whole packet, which may be the memory of a driver. Dropping it ends the reference,
//! in any context except hard interrupt.
//!
//! # Errors
//!
//! Without memory, or beyond a limit, the bytes stay in the stream. The caller copies them.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Memory of the packets of all parts, in bytes.
static HELD: Atomic<usize> = Atomic::new(0);

/// Limits on what is taken from a stream without a copy.
#[derive(Clone, Copy)]
pub(crate) struct TakeLimits {
    /// Least bytes. Fewer are copied.
    pub(crate) least: u32,
    /// Most bytes.
    pub(crate) most: u32,
    /// They may have less than half of the memory of their packet.
    pub(crate) any_share: bool,
}

impl TakeLimits {
    /// Returns the limits for the C functions, if all parts together may hold `held` bytes. `None`
    /// if no packet fits. CPUs that take parts at the same time may exceed `held` by a packet each.
    pub(super) fn raw(self, held: usize) -> Option<bindings::rds_skb_request> {
        let room = held.saturating_sub(HELD.load(Relaxed));
        (room >= self.least as usize).then_some(bindings::rds_skb_request {
            least: self.least,
            most: self.most,
            room,
            any_share: self.any_share,
        })
    }
}

/// A part of a packet.
///
/// # Invariants
///
/// `raw` is the only reference to a packet that a `rds_rust_skb_take` function has returned. Its
/// memory is in [`HELD`].
pub(crate) struct PacketPart {
    raw: NonNull<bindings::sk_buff>,
}

// SAFETY: The bytes are only read, and a packet may be freed on any thread.
unsafe impl Send for PacketPart {}
// SAFETY: Shared references only permit reads.
unsafe impl Sync for PacketPart {}

impl PacketPart {
    /// Creates the part of a packet, or returns `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `raw` is what a `rds_rust_skb_take` function has returned, and has no other owner.
    pub(super) unsafe fn from_raw(raw: *mut bindings::sk_buff) -> Option<Self> {
        // INVARIANT: By the caller's guarantee. The memory is added just below.
        let this = Self {
            raw: NonNull::new(raw)?,
        };
        HELD.fetch_add(this.true_size(), Relaxed);
        Some(this)
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: By the type invariants the packet is alive.
        (unsafe { bindings::rds_rust_skb_len(self.raw.as_ptr()) }) as usize
    }

    /// Returns the memory of the packet, in bytes.
    pub(crate) fn true_size(&self) -> usize {
        // SAFETY: By the type invariants the packet is alive.
        unsafe { bindings::rds_rust_skb_true_size(self.raw.as_ptr()) }
    }

    /// Returns the range in the form of the C functions, if the part has it.
    fn range(&self, at: usize, len: usize) -> Option<(u32, u32)> {
        let end = at.checked_add(len)?;
        // CAST: not above `len()`, which was a `u32`.
        (end <= self.len()).then_some((at as u32, len as u32))
    }

    /// Copies the first `len` bytes to a program.
    ///
    /// # Errors
    ///
    /// - `EFAULT`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn copy_to(&self, msg: &mut bindings::msghdr, len: usize) -> Result {
        let (at, len) = self.range(0, len).ok_or(EFAULT)?;
        // SAFETY: By the type invariants the packet is alive, and it has the range. The message is
        // that of a `recvmsg` call, by `RecvMsg::new`.
        to_result(unsafe { bindings::rds_rust_skb_copy_to_msg(self.raw.as_ptr(), at, msg, len) })
    }

    /// Appends `len` bytes from `at` on to `out`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - `EFAULT` if the part has fewer bytes.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn append_to(&self, out: &mut KVVec<u8>, at: usize, len: usize) -> Result {
        let (from, count) = self.range(at, len).ok_or(EFAULT)?;
        out.reserve(len, GFP_ATOMIC)?;
        let to = out.spare_capacity_mut().get_mut(..len).ok_or(EFAULT)?;
        let to = to.as_mut_ptr().cast();
        // SAFETY: By the type invariants the packet is alive, and it has the range. There is room
        // for `len` bytes at `to`.
        to_result(unsafe { bindings::rds_rust_skb_copy(self.raw.as_ptr(), from, to, count) })?;
        // SAFETY: The `len` elements behind the length were initialised just now.
        unsafe { out.inc_len(len) };
        Ok(())
    }
}

impl Drop for PacketPart {
    fn drop(&mut self) {
        HELD.fetch_sub(self.true_size(), Relaxed);
        // SAFETY: By the type invariants this is the only reference to the packet.
        unsafe { bindings::rds_rust_skb_free(self.raw.as_ptr()) };
    }
}
