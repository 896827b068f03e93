// SPDX-License-Identifier: GPL-2.0

//! Lock of a connection's send side, and the messages that were queued while it was locked.
//!
//! Frames are built and posted with the lock held, which takes a while. So a sender that finds it
//! locked leaves its message in the inbox, for the holder of the [`SendToken`]. The inbox has a
//! lock of its own, which is held only to push and pop. Each context that locks the send side takes
//! the messages out of the inbox first, so all queued messages are in its queues. `locking.md` has
//! the rules.

use super::send_token::{
    Holding,
    SendToken, //
};
use crate::{
    kapi::sync::{
        new_spinlock_bh,
        Fifo,
        Item,
        ReadOnce,
        SoftirqsOff,
        SpinLockBh,
        SpinLockBhGuard, //
    },
    msg::Message, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Number of messages in the inbox from which senders wait for the lock. It bounds the time that
/// moving them takes.
const FULL: usize = 256;

/// The send side of a connection, which takes the messages of the inbox.
pub(super) trait SendSide: Unpin {
    /// Queues a message behind all others.
    fn push(&mut self, message: Item<Message>);
}

/// The send side of a connection behind its lock.
// A sender writes the token, the lock and the first fields of `tx`, so they are neighbours.
#[pin_data]
#[repr(C)]
pub(super) struct TxLock<T> {
    token: SendToken,
    /// Number of messages in the inbox. Changed with `inbox` locked.
    mail: Atomic<usize>,
    #[pin]
    tx: SpinLockBh<T>,
    #[pin]
    inbox: SpinLockBh<Fifo<Message>>,
}

impl<T: SendSide> TxLock<T> {
    pub(super) fn new(tx: T) -> impl PinInit<Self> {
        pin_init!(Self {
            tx <- new_spinlock_bh!(tx, "Path::tx"),
            inbox <- new_spinlock_bh!(Fifo::new(), "Path::inbox"),
            mail: Atomic::new(0),
            token: SendToken::new(),
        })
    }

    /// Locks the send side.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(super) fn lock(&self) -> SpinLockBhGuard<'_, T> {
        let mut tx = self.tx.lock();
        self.empty_inbox(&mut tx);
        tx
    }

    /// Locks the send side. Returns `None` if another context has it locked and the inbox has room.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<SpinLockBhGuard<'_, T>> {
        let mut tx = match self.tx.try_lock() {
            Some(tx) => tx,
            None if self.mail.read_once() >= FULL => self.tx.lock(),
            None => return None,
        };
        self.empty_inbox(&mut tx);
        Some(tx)
    }

    /// Moves the messages of the inbox to the unsent queue.
    #[inline]
    fn empty_inbox(&self, tx: &mut T) {
        if self.mail.read_once() > 0 {
            self.move_messages(tx);
        }
    }

    #[cold]
    fn move_messages(&self, tx: &mut T) {
        let mut messages = Fifo::new();
        let mut inbox = self.inbox.lock();
        messages.append(&mut inbox);
        self.mail.store(0, Relaxed);
        drop(inbox);
        // Not many more than `FULL`.
        while let Some(message) = messages.pop_front() {
            tx.push(message);
        }
    }

    /// Leaves a message in the inbox, if the connection `takes` it. The caller then asks for the
    /// token.
    ///
    /// # Errors
    ///
    /// Returns the message if the connection does not take it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn leave(
        &self,
        message: Item<Message>,
        takes: impl FnOnce(&Message) -> bool,
    ) -> Result<(), Item<Message>> {
        let mut inbox = self.inbox.lock();
        if !takes(&message) {
            return Err(message);
        }
        inbox.push_back(message);
        self.mail.store(inbox.len(), Relaxed);
        Ok(())
    }

    /// Calls `end`, after which the caller of [`Self::leave`] takes no message. Returns `false`
    /// without the call if there are messages in the inbox. The send side is locked.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn end(&self, _tx: &SpinLockBhGuard<'_, T>, end: impl FnOnce()) -> bool {
        let inbox = self.inbox.lock();
        let is_empty = inbox.is_empty();
        if is_empty {
            end();
        }
        is_empty
    }

    /// Asks for a transmission. Returns the token if nobody holds it.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(super) fn ask(&self) -> Option<Holding> {
        self.token.ask()
    }

    /// Asks for a transmission. Returns the token and locks the send side if nobody holds the
    /// token.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn ask_and_lock(&self) -> Option<(SpinLockBhGuard<'_, T>, Holding)> {
        // Others leave their messages to the holder of the token, so it is not preempted before it
        // has the lock.
        let softirqs_off = SoftirqsOff::new();
        let token = self.token.ask()?;
        let tx = self.lock();
        drop(softirqs_off);
        Some((tx, token))
    }

    /// Locks the send side for the work item to which the holder has handed the token.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn take_over(&self) -> (SpinLockBhGuard<'_, T>, Holding) {
        let token = self.token.take_over();
        (self.lock(), token)
    }

    /// Gives the token back after a transmission. Returns it if somebody has asked since; the
    /// queues then have all messages that were queued before that.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt, with the send side locked.
    #[inline]
    pub(super) fn give_back(&self, tx: &mut T, token: Holding) -> Option<Holding> {
        let again = self.token.give_back(token)?;
        self.empty_inbox(tx);
        Some(again)
    }
}
