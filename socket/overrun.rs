// SPDX-License-Identifier: GPL-2.0

//! Limits on arriving messages at a socket, and reports of dropped messages to its program.
//!
//! If a program does not read, only its socket loses messages. The connection and other sockets are
//! not affected.

use super::{
    recv_queue::RecvQueue,
    Account,
    Incoming,
    Socket, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::{
            poll,
            Sock, //
        },
        sync::ReadOnce, //
    },
    proto::rcvbuf::{
        Unread,
        Usage, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed,
        Release, //
    }, //
};

impl Sock<Socket> {
    /// Returns `true` if a peer goes on sending although the port is congested, so more is dropped.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn is_overrun(&self) -> bool {
        self.overrun.read_once()
    }

    /// Prepares a message from another node for the queue, or returns the counter for its drop. It
    /// is dropped if the socket has far more than its receive buffer allows. It is also dropped if
    /// the user has far more than a share of the receive memory.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn admit(&self, message: &mut Incoming) -> Result<(), Counter> {
        if self.is_overrun() {
            return Err(Counter::RecvDropOverrun);
        }
        // `is_tight` is updated with each charged message, so at most one message is too many.
        match &self.creator {
            Some(account) if account.is_tight() => self.admit_tight(account, message),
            _ => Ok(()),
        }
    }

    #[cold]
    fn admit_tight(&self, account: &Account, message: &mut Incoming) -> Result<(), Counter> {
        if !message.is_in_buffers() {
            return match account.takes_short(&self.node) {
                true => Ok(()),
                false => Err(Counter::RecvDropShare),
            };
        }
        match account.usage(&self.node) {
            Usage::Small | Usage::Tight => Ok(()),
            Usage::Large if message.copy_out() => {
                self.node.stats.inc(Counter::RecvCopiedOut);
                Ok(())
            }
            Usage::Large | Usage::Full => Err(Counter::RecvDropShare),
        }
    }

    /// Charges the user for a message of this `cost` that is being queued. Called with the queue
    /// locked.
    #[inline]
    pub(super) fn charge(&self, recv: &mut RecvQueue, message: &Incoming, cost: usize) {
        if let Some(account) = &self.creator {
            let more = message.charged(cost);
            self.charge_to(account, recv, more);
        }
    }

    #[inline(never)]
    fn charge_to(&self, account: &Account, recv: &mut RecvQueue, more: Unread) {
        let more = recv.charges.add(more);
        if more.total() != 0 {
            account.charge_unread(&self.node, more);
        }
    }

    /// Uncharges a message of this `cost`. Called with the queue locked.
    #[inline]
    pub(super) fn uncharge(&self, recv: &mut RecvQueue, message: &Incoming, cost: usize) {
        if let Some(account) = &self.creator {
            let less = message.charged(cost);
            self.uncharge_from(account, recv, less);
        }
    }

    #[inline(never)]
    fn uncharge_from(&self, account: &Account, recv: &mut RecvQueue, less: Unread) {
        let less = recv.charges.subtract(less, account.is_charged_closely());
        if less.total() != 0 {
            account.uncharge_unread(&self.node, less);
        }
    }

    /// Uncharges all messages. Called with the queue locked.
    pub(super) fn uncharge_all(&self, recv: &mut RecvQueue) {
        if let Some(account) = &self.creator {
            account.uncharge_unread(&self.node, recv.charges.take());
        }
    }

    /// Notes that a message for this socket was dropped, which is reported to the program.
    ///
    /// # Context
    ///
    /// Any context, no lock held.
    #[cold]
    pub(crate) fn note_lost(&self) {
        self.set_error(Errno::NoBufferSpace);
        self.lost.store(true, Release);
        self.wake_readers(poll::IN | poll::ERR);
    }

    /// Returns `true` if [`Self::take_loss`] may fail.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn may_have_lost(&self) -> bool {
        self.lost.read_once()
    }

    /// Reports dropped messages to the program, once.
    ///
    /// After an error the next call does not report another one if a message can be read. So a
    /// reader makes progress even if messages are dropped all the time.
    ///
    /// # Errors
    ///
    /// - `ENOBUFS` if messages were dropped and that was not reported yet.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(crate) fn take_loss(&self) -> Result {
        if self.loss_reported.xchg(false, Full) && self.may_read() {
            return Ok(());
        }
        // Before the error is taken: a later error is found by the next call.
        self.lost.xchg(false, Full);
        let result = self.take_error();
        self.loss_reported.store(result.is_err(), Relaxed);
        result
    }
}
