// SPDX-License-Identifier: GPL-2.0

//! Forward declarations: types that files of this folder refer to before they are defined.
//!
//! A socket has lists of waiters, an account and a receive queue, which refer to other sockets. It
//! also refers to its node and to connections. These refer to sockets, so they are in a folder
//! above this one. Earlier files know such a type as an associated type of [`Forward`]. The
//! compiler knows the types behind them, so calls are direct ones.
//!
//! Files between this one and `state.rs` call only [`ForwardSocket`]. `upper.rs` has the calls to
//! the node and to connections.

use super::cong_notify::CongNotify;
use crate::kapi::net::{
    Protocol,
    Sock, //
};

/// Types that are defined later. Implemented for [`Declared`], once.
pub(crate) trait Forward {
    /// The socket, [`super::Socket`].
    type Socket: ForwardSocket;
    type Node;
    type Connection;
}

/// Type that the definitions belong to. It has no values.
pub(crate) enum Declared {}

/// A socket.
pub(super) type Socket = <Declared as Forward>::Socket;

/// The node of a socket.
pub(super) type Node = <Declared as Forward>::Node;

/// A connection to another node.
pub(super) type Connection = <Declared as Forward>::Connection;

/// A socket, as the files use it that refer to one before it is defined.
pub(crate) trait ForwardSocket: Protocol {
    /// Returns the notifications about ports that were congested.
    ///
    /// # Context
    ///
    /// Any context.
    fn cong_notify(&self) -> &CongNotify;

    /// Releases bytes of the send buffer.
    ///
    /// # Context
    ///
    /// Any context.
    fn credit_send(sk: &Sock<Self>, bytes: usize);

    /// Releases bytes of the user's share.
    ///
    /// # Context
    ///
    /// Any context.
    fn credit_share(&self, bytes: usize);
}
