// SPDX-License-Identifier: GPL-2.0

//! What a socket does not take of what arrives, and how its program hears of that.
//!
//! Who does not read pays: neither the connection does, nor another socket.

use super::{socket::RecvQueue, Incoming, Socket};
use crate::conn::{Account, Counter};
use crate::kapi::{
    errno::Errno,
    net::{poll, Sock},
    sync::Peek,
};
use crate::proto::rcvbuf::{Unread, Usage};
use kernel::{
    prelude::*,
    sync::atomic::{Full, Relaxed, Release},
};

impl Sock<Socket> {
    /// Whether a peer sends and sends, though the port is congested. Any context.
    #[inline]
    pub(super) fn is_overrun(&self) -> bool {
        self.overrun.peek()
    }

    /// Has a message from another node ready to be queued, or says why the socket does not take it:
    /// it has far more than its receive buffer takes, or its user far more than a share of the
    /// memory to receive with. Any context.
    #[inline]
    pub(crate) fn admit(&self, message: &mut Incoming) -> Result<(), Counter> {
        if self.is_overrun() {
            return Err(Counter::RecvDropOverrun);
        }
        // Judged with each message that is charged: one may be too many.
        match &self.maker {
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

    /// Charges the user with a message of this `cost` that is to wait. Called with the queue locked.
    #[inline]
    pub(super) fn charge(&self, recv: &mut RecvQueue, message: &Incoming, cost: usize) {
        if let Some(account) = &self.maker {
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

    /// Takes the charge for a message of this `cost` back. Called with the queue locked.
    #[inline]
    pub(super) fn uncharge(&self, recv: &mut RecvQueue, message: &Incoming, cost: usize) {
        if let Some(account) = &self.maker {
            let less = message.charged(cost);
            self.uncharge_from(account, recv, less);
        }
    }

    #[inline(never)]
    fn uncharge_from(&self, account: &Account, recv: &mut RecvQueue, less: Unread) {
        let less = recv.charges.subtract(less, account.is_tight());
        if less.total() != 0 {
            account.uncharge_unread(&self.node, less);
        }
    }

    /// Takes the charge for all messages back. Called with the queue locked.
    pub(super) fn uncharge_all(&self, recv: &mut RecvQueue) {
        if let Some(account) = &self.maker {
            account.uncharge_unread(&self.node, recv.charges.take());
        }
    }

    /// Notes that a message for this socket was dropped, which the program is told. Any context, no
    /// lock held.
    #[cold]
    pub(crate) fn note_lost(&self) {
        self.set_error(Errno::NoBufferSpace);
        self.lost.store(true, Release);
        self.wake_readers(poll::IN | poll::ERR);
    }

    /// Whether [`Self::take_loss`] may fail. Any context.
    #[inline]
    pub(crate) fn may_have_lost(&self) -> bool {
        self.lost.peek()
    }

    /// Fails with ENOBUFS if messages were dropped and the program was not told yet. Any context.
    ///
    /// After such a failure a message that waits goes first: while more are dropped all the time, a
    /// reader shall get on.
    #[cold]
    pub(crate) fn take_loss(&self) -> Result {
        if self.loss_told.xchg(false, Full) && self.may_read() {
            return Ok(());
        }
        // Before the error is taken: another one that comes now is found the next time.
        self.lost.xchg(false, Full);
        let told = self.take_error();
        self.loss_told.store(told.is_err(), Relaxed);
        told
    }
}
