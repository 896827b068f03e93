// SPDX-License-Identifier: GPL-2.0

//! Charges for the bounce buffers of shards.
//!
//! A shard holds its bounce buffers as long as it is mapped, and the number of shards also depends
//! on peers. [`BounceBounds`] has the limits.

use super::bounce_bounds::BounceBounds;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Bounce buffers of the shards of all arenas, in bytes.
static HELD: Atomic<usize> = Atomic::new(0);

/// Bounce buffers of the shards of one arena, in bytes.
pub(super) struct ArenaBounced(Atomic<usize>);

impl ArenaBounced {
    /// Creates the account of an arena without shards.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }
}

/// Charge for the bounce buffers of a shard.
pub(super) struct Bounced {
    bytes: usize,
    arena: Arc<ArenaBounced>,
}

impl Bounced {
    /// Charges `bytes` to an arena. Returns `None` if shards would hold too many.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn charge(
        arena: &Arc<ArenaBounced>,
        bytes: usize,
        bounds: BounceBounds,
    ) -> Option<Self> {
        // Added before the check, so that concurrent charges cannot exceed a bound together.
        let held = HELD.fetch_add(bytes, Relaxed);
        let own = arena.0.fetch_add(bytes, Relaxed);
        let this = Self {
            bytes,
            arena: arena.clone(),
        };
        bounds.has_room(own, held, bytes).then_some(this)
    }
}

impl Drop for Bounced {
    fn drop(&mut self) {
        self.arena.0.fetch_sub(self.bytes, Relaxed);
        HELD.fetch_sub(self.bytes, Relaxed);
    }
}
