// SPDX-License-Identifier: GPL-2.0

//! The room that a message takes in its sender's send buffer, and in the share of its sender's
//! user.

use super::Socket;
use crate::conn::Account;
use crate::kapi::net::Sock;
use kernel::sync::aref::ARef;

/// Room in a socket's send buffer. Dropping it gives the room back and wakes who waits for it, so a
/// message pays for itself exactly once, however it ends.
pub(crate) struct SndbufCharge {
    sk: ARef<Sock<Socket>>,
    bytes: u32,
    /// It is room in the user's share, too.
    shared: bool,
}

/// What is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTicket {
    Buffer,
    Share,
}

impl SndbufCharge {
    /// Takes room for a message that takes so many bytes of memory, unless `limit` bytes or more
    /// are taken. If it is for another node `account` is that of the socket's user, if he has one.
    ///
    /// The last message may go over the limit, as on C RDS: what counts is that there was room.
    #[inline(always)]
    pub(crate) fn take(
        sk: &Sock<Socket>,
        account: Option<&Account>,
        bytes: usize,
        limit: usize,
    ) -> Result<Self, NoTicket> {
        // No message takes so much.
        let size = u32::try_from(bytes).map_err(|_| NoTicket::Buffer)?;
        if !sk.charge_send(bytes, limit) {
            return Err(NoTicket::Buffer);
        }
        if account.is_some_and(|account| !account.charge(&sk.node, bytes)) {
            sk.credit_send(bytes);
            return Err(NoTicket::Share);
        }
        Ok(Self {
            sk: sk.hold(),
            bytes: size,
            shared: account.is_some(),
        })
    }

    /// How much it is, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// The socket that pays.
    pub(crate) fn socket(&self) -> &Sock<Socket> {
        &self.sk
    }
}

impl Drop for SndbufCharge {
    #[inline]
    fn drop(&mut self) {
        let bytes = self.bytes();
        if self.shared {
            self.sk.credit_share(bytes);
        }
        self.sk.credit_send(bytes);
    }
}
