// SPDX-License-Identifier: GPL-2.0

//! Accounts of the memory of shards, and charges for their bounce buffers.
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

/// Account of the shards of one arena, or of several that share their limits.
pub(super) struct ArenaAccount {
    /// Bytes of the shards, including reservations for shards that are being made.
    bytes: Atomic<usize>,
    /// Bounce buffers of the shards, in bytes.
    bounced: Atomic<usize>,
}

impl ArenaAccount {
    /// Creates the account of arenas without shards.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        let this = Self {
            bytes: Atomic::new(0),
            bounced: Atomic::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Adds a shard, unless all shards together would exceed `limit` bytes. Returns `false` then.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn reserve(&self, bytes: usize, limit: usize) -> bool {
        let mut old = self.bytes.load(Relaxed);
        loop {
            // A request that does not fit changes nothing: a smaller one may fit at the same time.
            let new = old.saturating_add(bytes);
            if new > limit {
                return false;
            }
            match self.bytes.cmpxchg(old, new, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Subtracts a shard.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// Charge for the bounce buffers of a shard.
pub(super) struct Bounced {
    bytes: usize,
    account: Arc<ArenaAccount>,
}

impl Bounced {
    /// Charges `bytes` to `account`. Returns `None` if shards would hold too many.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn charge(
        account: &Arc<ArenaAccount>,
        bytes: usize,
        bounds: BounceBounds,
    ) -> Option<Self> {
        // A charge without room changes nothing, as a smaller one may have room at the same time.
        let (own, held) = (account.bounced.load(Relaxed), HELD.load(Relaxed));
        if !bounds.has_room(own, held, bytes) {
            return None;
        }
        // Checked again, as concurrent charges could exceed a bound together.
        let held = HELD.fetch_add(bytes, Relaxed);
        let own = account.bounced.fetch_add(bytes, Relaxed);
        let this = Self {
            bytes,
            account: account.clone(),
        };
        bounds.has_room(own, held, bytes).then_some(this)
    }
}

impl Drop for Bounced {
    fn drop(&mut self) {
        self.account.bounced.fetch_sub(self.bytes, Relaxed);
        HELD.fetch_sub(self.bytes, Relaxed);
    }
}
