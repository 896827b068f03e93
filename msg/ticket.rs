// SPDX-License-Identifier: GPL-2.0

//! The room that a message takes in its sender's send buffer.

use super::Socket;
use crate::kapi::net::Sock;
use kernel::sync::aref::ARef;

/// Room in a socket's send buffer. Dropping it gives the room back and wakes who waits for it, so a
/// message pays for itself exactly once, however it ends.
pub(crate) struct Ticket {
    sk: ARef<Sock<Socket>>,
    bytes: usize,
}

impl Ticket {
    /// Takes room for a message that takes so many bytes of memory, or `None` while `limit` bytes or more are
    /// taken.
    ///
    /// The last message may go over the limit, as on C RDS: what counts is that there was room.
    pub(crate) fn take(sk: &Sock<Socket>, bytes: usize, limit: usize) -> Option<Self> {
        sk.charge_send(bytes, limit).then(|| Self {
            sk: sk.hold(),
            bytes,
        })
    }

    /// How much it is, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The socket that pays.
    pub(crate) fn socket(&self) -> &Sock<Socket> {
        &self.sk
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.sk.credit_send(self.bytes);
    }
}
