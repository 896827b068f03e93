// SPDX-License-Identifier: GPL-2.0

//! Lists on which a socket waits for room: of a peer, of a socket on this node, and of memory that
//! it shares with others.
//!
//! A socket that is closed removes itself from all of them.

use super::{
    RoomWaiters,
    Socket,
    UpperConnection,
    Waiters,
    WaitingOn, //
};
use crate::kapi::net::Sock;
use kernel::{
    prelude::*,
    sync::Arc, //
};

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

impl Sock<Socket> {
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
