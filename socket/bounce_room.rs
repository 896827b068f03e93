// SPDX-License-Identifier: GPL-2.0

//! Bounce buffers for the local memory of operations, which `bounce_charge.rs` charges.
//!
//! A device that cannot reach all memory accesses memory of programs through bounce buffers, of
//! which the kernel has few. An operation holds them from the call that begins it until its memory
//! is released. That may take as long as its peer accepts nothing. So a call without room waits
//! until other operations have ended. It does so before it holds anything that they need.

use super::RoomWaiters;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

/// The bounce buffers that operations of this node hold.
pub(crate) struct BounceRoom {
    /// In bytes.
    pub(super) held: Atomic<usize>,
    /// A socket waits for room.
    pub(super) is_awaited: Atomic<bool>,
    pub(crate) waiters: Arc<RoomWaiters>,
}

impl BounceRoom {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            held: Atomic::new(0),
            is_awaited: Atomic::new(false),
            waiters: RoomWaiters::new()?,
        })
    }

    /// Lets the next release wake all waiters. A waiter calls this after it was added, and then
    /// looks for room again.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn await_release(&self) {
        // Full order: a concurrent release either sees the flag, or its bytes are seen afterwards.
        self.is_awaited.xchg(true, Full);
    }
}
