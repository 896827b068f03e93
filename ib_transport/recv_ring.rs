// SPDX-License-Identifier: GPL-2.0

//! Receive ring of a queue pair: its depth, and the buffers that can be posted again.
//!
//! The ring is locked with the polling of its completion queue. Buffers of the pool belong to the
//! queue pair once they are posted; until then to the ring.

use crate::{
    proto::{
        recv_depth::RecvDepth,
        starvation::{
            SendStarvation,
            Starvation, //
        },
        wire::FragmentSize, //
    },
    recv_pool::Batch, //
};
use kernel::time::{
    Instant,
    Monotonic, //
};

/// Number of receives that are posted for a new or idle connection, unless more are configured. One
/// shard of the pool holds them if fragments are small, otherwise two.
const fn first_depth(size: FragmentSize) -> u32 {
    match size {
        FragmentSize::K4 => 15,
        FragmentSize::K8 => 14,
        FragmentSize::K16 => 6,
    }
}

/// Maximum payload bytes of the receives of one ring.
const MAX_RING_BYTES: u32 = 4 << 20;

/// Number of receives that are posted on an idle connection, if that is more than usual.
pub(super) enum Least {
    /// The device ends a connection whose frame finds no receive.
    Needed(u32),
    /// The setting `min_recv_wr`.
    Wanted(u32),
}

/// Depth of the receive ring, and what is needed to keep it.
pub(super) struct RecvRingPolicy {
    pub(super) depth: RecvDepth,
    /// Depth of an idle ring if there are no buffers for what `min_recv_wr` asks for.
    pub(super) usual: u32,
    /// Buffers that can be posted again.
    pub(super) spare: Batch,
    /// Wait of a starved ring for buffers.
    pub(super) starvation: Starvation,
    /// Wait of a transmission for the memory of a buffer.
    pub(super) send_starvation: SendStarvation,
    /// Number of receives that flow control reserves for headers.
    reserved: u32,
    /// Time of the last header to the peer while the ring was starved, or a frame waited.
    pub(super) last_header: Option<Instant<Monotonic>>,
    /// A frame waits for memory. The value is the number of its messages that were received.
    pub(super) delayed: Option<u32>,
    /// The RNR timer is the one of a starved ring.
    pub(super) rnr_timer_raised: bool,
}

impl RecvRingPolicy {
    /// Creates the policy of a ring with `slots` entries for fragments of `size`. At least `least`
    /// receives are kept posted, as far as [`MAX_RING_BYTES`] permits. Flow control, if
    /// `controlled`, reserves one for headers.
    pub(super) fn new(size: FragmentSize, slots: u32, least: Least, controlled: bool) -> Self {
        let most = slots.min(MAX_RING_BYTES / size.bytes());
        let usual = first_depth(size);
        let (first, usual) = match least {
            Least::Needed(count) => (usual.max(count), u32::MAX),
            Least::Wanted(count) => (usual.max(count), usual),
        };
        Self {
            depth: RecvDepth::new(first, most),
            usual,
            spare: Batch::new(),
            starvation: Starvation::new(),
            send_starvation: SendStarvation::new(),
            reserved: controlled.into(),
            last_header: None,
            delayed: None,
            rnr_timer_raised: false,
        }
    }

    /// Returns the number of arrived frames, modulo 2^32, and `true` if no frame is taken for want
    /// of memory.
    pub(super) fn activity(&self) -> (u32, bool) {
        let is_starved = self.starvation.is_starved() || self.delayed.is_some();
        (self.depth.arrived(), is_starved)
    }

    /// Returns `true` if nothing is posted for messages.
    pub(super) fn is_empty(&self) -> bool {
        self.depth.posted() <= self.reserved
    }

    /// Notes that `count` receives were posted. `found`: the pool had buffers.
    ///
    /// The buffer of a header that is posted again is no sign of memory: two starved ends send each
    /// other headers.
    pub(super) fn note_posted(&mut self, count: u32, found: bool) {
        self.depth.add(count);
        if count > 0 && (found || !self.is_empty()) {
            self.starvation.end();
        }
    }
}
