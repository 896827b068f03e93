// SPDX-License-Identifier: GPL-2.0

//! Charge for a message to its sender's send buffer and to the share of the sender's user.

use super::{
    Account,
    Socket, //
};
use crate::kapi::net::Sock;
use kernel::sync::aref::ARef;

/// Bytes charged to a socket's send buffer. Dropping the charge releases them and wakes waiters. So
/// each message is charged exactly once, however it ends.
pub(crate) struct SndbufCharge {
    sk: ARef<Sock<Socket>>,
    bytes: u32,
    /// The bytes are also charged to the user's share.
    shared: bool,
}

/// The limit that was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeError {
    Buffer,
    Share,
}

impl SndbufCharge {
    /// Charges a message of `bytes` bytes of memory, unless `limit` bytes or more are in use. For a
    /// message to another node, `account` is that of the socket's user, if there is one.
    ///
    /// The last message may exceed the limit, as on C RDS: only the room before it counts.
    ///
    /// # Errors
    ///
    /// - [`ChargeError::Buffer`] if the send buffer is full.
    /// - [`ChargeError::Share`] if the user's share is full.
    #[inline(always)]
    pub(crate) fn take(
        sk: &Sock<Socket>,
        account: Option<&Account>,
        bytes: usize,
        limit: usize,
    ) -> Result<Self, ChargeError> {
        // No message takes this much.
        let size = u32::try_from(bytes).map_err(|_| ChargeError::Buffer)?;
        if !sk.charge_send(bytes, limit) {
            return Err(ChargeError::Buffer);
        }
        if account.is_some_and(|account| !account.charge(&sk.node, bytes)) {
            sk.credit_send(bytes);
            return Err(ChargeError::Share);
        }
        Ok(Self {
            sk: sk.hold(),
            bytes: size,
            shared: account.is_some(),
        })
    }

    /// Returns the charged bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Returns the charged socket.
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
