// SPDX-License-Identifier: GPL-2.0

//! Charge for a message to its sender's send buffer and to the share of the sender's user.

use super::forward::{
    ForwardSocket,
    Socket, //
};
use crate::kapi::net::Sock;
use kernel::sync::aref::ARef;

/// Bytes charged to a socket's send buffer. Dropping the charge releases them and wakes waiters. So
/// each message is charged exactly once, however it ends.
pub(crate) struct SndbufCharge {
    pub(super) sk: ARef<Sock<Socket>>,
    pub(super) bytes: u32,
    /// The bytes are also charged to the user's share.
    pub(super) shared: bool,
}

impl SndbufCharge {
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
        Socket::credit_send(&self.sk, bytes);
    }
}
