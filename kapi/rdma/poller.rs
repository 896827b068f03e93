// SPDX-License-Identifier: GPL-2.0

//! State of the softirq that polls a queue pair, and the limits of one run.

use super::{
    completion::Received,
    drain::DrainEntry, //
};
use crate::bindings;
use core::ptr;
use kernel::{
    cpu::CpuId,
    prelude::*, //
};

/// Maximum number of completions that are polled at once.
const POLL_BATCH: usize = 16;
/// Maximum number while the completions have many parts, see [`MANY_PARTS`].
pub(super) const SMALL_BATCH: c_int = 4;
/// Average number of message parts per completion above which [`SMALL_BATCH`] applies.
pub(super) const MANY_PARTS: u32 = 8;
/// Maximum number of completions in one run of the softirq.
pub(super) const POLL_BUDGET: c_int = 64;
/// Number of message parts that ends a run as well, because the peer decides on it.
pub(super) const MOST_PARTS: u32 = 512;

/// State of the poller. Only one poller runs at a time.
///
/// # Invariants
///
/// - `cq` is null, or the queue pair's completion queue, which is alive until `cq` is null.
/// - While `cq` is not null, `drains` are live entries or [`DrainEntry::NONE`].
pub(super) struct Poller<T> {
    pub(super) cq: *mut bindings::ib_cq,
    pub(super) wcs: KVec<bindings::ib_wc>,
    /// Messages of `wcs` on the way to the handler. All `None` between batches, except in
    /// [`Flow::Pause`].
    pub(super) messages: KVec<Option<Received>>,
    pub(super) handler: T,
    /// Completion entries of the drain. No other entries are posted.
    pub(super) drains: [DrainEntry; 2],
    /// A failure of the queue was reported.
    pub(super) send_failed: bool,
    pub(super) recv_failed: bool,
    /// A completion was not the next one of its queue, which was reported.
    pub(super) out_of_order: bool,
    /// The previous batch had many message parts, see [`MANY_PARTS`].
    pub(super) small_batches: bool,
    pub(super) flow: Flow,
    /// CPU of the last run that found a completion.
    pub(super) cpu: Option<CpuId>,
    /// The queue pair is being closed, so it must not pause.
    pub(super) closing: bool,
}

/// Treatment of received messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The handler gets them.
    Deliver,
    /// The handler could not handle one. They are kept, and nothing is polled.
    Pause,
    /// The handler could not handle one, and the queue pair is being closed. They are dropped,
    /// because no message may overtake that one.
    Discard,
}

// SAFETY: Any thread may use the completion queue. Pointers in old completions are not used.
unsafe impl<T: Send> Send for Poller<T> {}

impl<T> Poller<T> {
    /// Creates the state of a queue pair that has no completion queue yet.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(handler: T) -> Result<Self> {
        let mut messages = KVec::with_capacity(POLL_BATCH, GFP_KERNEL)?;
        for _ in 0..POLL_BATCH {
            messages.push_within_capacity(None).map_err(|_| ENOMEM)?;
        }
        // INVARIANT: `cq` is null.
        Ok(Self {
            cq: ptr::null_mut(),
            wcs: KVec::from_elem(bindings::ib_wc::default(), POLL_BATCH, GFP_KERNEL)?,
            messages,
            handler,
            drains: [DrainEntry::NONE; 2],
            send_failed: false,
            recv_failed: false,
            out_of_order: false,
            small_batches: false,
            flow: Flow::Deliver,
            cpu: None,
            closing: false,
        })
    }
}
