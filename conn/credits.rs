// SPDX-License-Identifier: GPL-2.0

//! Flow control of a connection. `proto::credits` has the rules.

use super::{
    Connection,
    Path, //
};
use crate::{
    kapi::sync::ReadOnce,
    proto::credits::Credits,
    stats::Counter, //
};
use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

impl Path {
    /// Resets the credits for a new endpoint, which uses flow control if `on`.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn begin_credits(&self, on: bool) {
        let begin = if on { Credits::on } else { Credits::off };
        self.tx.lock().queue.credits = begin();
        self.peer_uses_credits.store(on, Relaxed);
    }

    /// Returns the number of receives to advertise in private data. 0 without flow control.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn offer_credits(&self) -> u32 {
        self.tx.lock().queue.credits.offer()
    }

    /// Sets the initial credit that the peer's private data advertises.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn take_offer(&self, credit: u32) {
        self.tx.lock().queue.credits.begin(credit);
    }
}

impl Connection {
    /// Adds the credit that a header of the peer advertises.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(super) fn note_credits(self: &Arc<Self>, credit: u8) {
        // Without flow control, headers with credit cost no more than headers without.
        if credit > 0 && self.path.peer_uses_credits.read_once() {
            self.grant(credit);
        }
    }

    /// Adds credit of the peer, and posts what waited for it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn grant(self: &Arc<Self>, credit: u8) {
        self.node.stats.inc(Counter::IbRxCreditUpdates);
        let mut tx = self.path.tx.lock();
        tx.queue.credits.grant(credit.into());
        self.transmit_and_unlock(tx);
    }

    /// Notes that the endpoint has posted `count` more receives, and has `all` now.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn posted(self: &Arc<Self>, count: u32, all: u32) {
        let mut tx = self.path.tx.lock();
        tx.queue.credits.posted(count, all);
        if tx.queue.credits.is_due() {
            self.transmit_and_unlock(tx);
        }
    }
}
