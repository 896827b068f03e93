// SPDX-License-Identifier: GPL-2.0

//! Flow control of a connection. `proto::credits` has the rules.

use super::{Connection, Counter};
use crate::kapi::sync::Peek;
use crate::proto::credits::Credits;
use kernel::sync::atomic::Relaxed;

impl Connection {
    /// A new endpoint is being made, whose flow is controlled if `on`. Process context.
    pub(crate) fn begin_credits(&self, on: bool) {
        let begin = if on { Credits::on } else { Credits::off };
        self.tx.lock().queue.credits = begin();
        self.peer_uses_credits.store(on, Relaxed);
    }

    /// The receives to tell the peer of with private data: 0 without flow control. Process context.
    pub(crate) fn offer_credits(&self) -> u32 {
        self.tx.lock().queue.credits.offer()
    }

    /// The peer's private data offers so many receives. Process context.
    pub(crate) fn take_offer(&self, credit: u32) {
        self.tx.lock().queue.credits.begin(credit);
    }

    /// A header of the peer tells of so many more receives. Any context but a hard interrupt.
    #[inline]
    pub(super) fn note_credits(&self, credit: u8) {
        // Without flow control a header that tells of some costs no more than one that does not.
        if credit > 0 && self.peer_uses_credits.peek() {
            self.grant(credit);
        }
    }

    /// The peer has told of more receives. Any context but a hard interrupt.
    fn grant(&self, credit: u8) {
        self.node.stats.inc(Counter::IbRxCreditUpdates);
        let mut tx = self.tx.lock();
        tx.queue.credits.grant(credit.into());
        self.transmit_and_unlock(tx);
    }

    /// The endpoint has posted `count` receives, and now there are `all`. Any context but a hard
    /// interrupt.
    pub(crate) fn posted(&self, count: u32, all: u32) {
        let mut tx = self.tx.lock();
        tx.queue.credits.posted(count, all);
        if tx.queue.credits.is_due() {
            self.transmit_and_unlock(tx);
        }
    }
}
