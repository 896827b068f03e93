// SPDX-License-Identifier: GPL-2.0

//! Limit on the buffers of incomplete messages, for those whom nobody knows.
//!
//! All connections of the machine share the pools, and no account is charged for a message before
//! it is complete. Anybody can connect and begin messages. So strangers together have a part of a
//! pool for that, and connections in network namespaces of users have another one. Beyond it they
//! wait as without memory, and all others go on.

use crate::proto::wire::MAX_MESSAGE;
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

/// Part of the limit of a pool that these messages may have.
const PART: usize = 8;

/// Bytes of the pool that a message of the largest size takes at most.
const LARGEST: usize = (MAX_MESSAGE / 4 * 5) as usize;

/// Bytes of the buffers of incomplete messages that are limited together: those of strangers, or of
/// all namespaces of users.
pub(crate) struct PartialBudget(Arc<Atomic<usize>>);

/// Buffers of the incomplete message of one connection. Dropping it ends their charge.
pub(crate) struct PartialCharge {
    all: Arc<Atomic<usize>>,
    bytes: usize,
}

/// Limits on the buffers of incomplete messages, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct PartialLimit {
    /// Limit for the last frame of a message. The message is complete with it.
    last: usize,
    /// Limit for those before it. Messages of one frame go on although long ones stop half way.
    others: usize,
}

impl PartialLimit {
    /// Returns the limits for pools of at most `pool` bytes. A message of the largest size fits
    /// into the smallest ones.
    pub(crate) fn of_pool(pool: usize) -> Self {
        let last = (pool / PART).max(LARGEST.saturating_mul(2));
        Self {
            last,
            others: last / 2,
        }
    }

    /// Returns the limit for a frame.
    pub(crate) fn of_frame(self, is_last: bool) -> usize {
        match is_last {
            true => self.last,
            false => self.others,
        }
    }
}

impl PartialBudget {
    /// Creates a budget.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Atomic::new(0), GFP_KERNEL)?))
    }

    /// Returns the charge of a connection without an incomplete message. Any context.
    pub(crate) fn charge(&self) -> PartialCharge {
        PartialCharge {
            all: self.0.clone(),
            bytes: 0,
        }
    }
}

impl PartialCharge {
    /// Returns `true` if all together have room for another buffer. Any context.
    pub(crate) fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.all.load(Relaxed).saturating_add(bytes) <= most
    }

    /// Adds a buffer, unless all together would have more than `most` bytes. Returns `false` if it
    /// was not added. Any context.
    pub(crate) fn add(&mut self, bytes: usize, most: usize) -> bool {
        let before = self.all.fetch_add(bytes, Relaxed);
        let fits = before.saturating_add(bytes) <= most;
        if fits {
            self.bytes = self.bytes.saturating_add(bytes);
        } else {
            self.all.fetch_sub(bytes, Relaxed);
        }
        fits
    }

    /// Ends the charge of all buffers: the message is complete, or was dropped. Any context.
    pub(crate) fn clear(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.all.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Drop for PartialCharge {
    fn drop(&mut self) {
        self.clear();
    }
}
