// SPDX-License-Identifier: GPL-2.0

//! Lists on which a socket waits for room: of a peer, of a socket on this node, and of memory that
//! it shares with others.
//!
//! A socket that is closed removes itself from all of them.

use super::{
    upper::Connection,
    Account,
    RoomWaiters,
    Socket,
    UpperConnection,
    Waiters, //
};
use crate::kapi::{
    net::Sock,
    sync::ReadOnce, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc, //
    }, //
};

/// Owner of a list of waiters that a socket is on.
#[derive(Clone)]
pub(crate) enum WaitingOn {
    Peer(Arc<Connection>),
    Socket(ARef<Sock<Socket>>),
    Room(Arc<RoomWaiters>),
}

impl WaitingOn {
    /// Returns the list.
    pub(crate) fn waiters(&self) -> &Waiters {
        match self {
            Self::Peer(connection) => connection.waiters(),
            Self::Socket(sk) => &sk.waiters,
            Self::Room(room) => room.waiters(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self.waiters(), other.waiters())
    }

    /// Returns `true` if nothing waits for the owner any more: all waiters were woken when it
    /// ended.
    fn has_ended(&self) -> bool {
        match self {
            Self::Peer(connection) => UpperConnection::has_ended(&**connection),
            Self::Socket(sk) => sk.is_closed(),
            Self::Room(_) => false,
        }
    }
}

impl Socket {
    /// Returns the account that is charged for messages to other nodes. If there is none yet, that
    /// is the account of the calling program's user.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn account(&self) -> Result<Option<&Arc<Account>>> {
        if self.creator.is_none() && self.sender.as_ref().is_none() {
            // Another caller may have set it meanwhile; then that account stays.
            let sender = self.node.shared.accounts.of_caller()?;
            if sender.is_some() {
                self.is_charged.store(true, Relaxed);
            }
            self.sender.populate(sender);
        }
        Ok(self.known_account())
    }

    /// Returns the account, if there is one yet.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    fn known_account(&self) -> Option<&Arc<Account>> {
        match &self.creator {
            None => self.sender.as_ref()?.as_deref(),
            creator => creator.as_deref(),
        }
    }

    /// Releases bytes of the user's share.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline(never)]
    pub(super) fn credit_share(&self, bytes: usize) {
        if let Some(account) = self.known_account() {
            account.credit(&self.node, bytes);
        }
    }
}

impl Sock<Socket> {
    /// Returns `true` if the share of the user has room. Otherwise the socket is woken when it has.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    #[inline]
    pub(crate) fn may_use_share(&self) -> bool {
        !self.is_charged.read_once() || self.has_share()
    }

    #[inline(never)]
    fn has_share(&self) -> bool {
        let Some(account) = self.known_account() else {
            return true;
        };
        // If there is no memory for the waiter, the next call reports the room.
        account.has_room(&self.node)
            || self.await_room(&account.waiters).is_err()
            || account.has_room(&self.node)
    }

    /// Lets the socket be woken when there is room. The caller then checks again.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn await_room(&self, room: &Arc<RoomWaiters>) -> Result {
        self.note_waiting(&WaitingOn::Room(room.clone()))?;
        room.waiters().add(self, 0, false)
    }

    /// Remembers that this socket may be on a list of waiters.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn note_waiting(&self, list: &WaitingOn) -> Result {
        let mut lists = self.waiting_on.lock();
        if !lists.iter().any(|other| other.is(list)) {
            if lists.len() == lists.capacity() {
                // Otherwise a program that opens and closes sockets would fill memory.
                lists.retain(|list| !list.has_ended());
            }
            lists.push(list.clone(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// Removes this socket, which is being closed, from all lists of waiters.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn stop_waiting(&self) {
        let lists = core::mem::replace(&mut *self.waiting_on.lock(), KVec::new());
        for list in lists {
            list.waiters().remove(self);
        }
    }
}
