// SPDX-License-Identifier: GPL-2.0

//! Socket error numbers that `kernel::error::code` lacks.
//!
//! C header: [`include/linux/errno.h`](srctree/include/linux/errno.h)

use crate::bindings;
use kernel::prelude::*;

/// An error number of the socket interface. The `?` operator converts it to
/// [`kernel::error::Error`].
// CAST: the numbers are below 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Errno {
    NoProtocolOption = bindings::ENOPROTOOPT as i32,
    WrongProtocolType = bindings::EPROTOTYPE as i32,
    SocketTypeNotSupported = bindings::ESOCKTNOSUPPORT as i32,
    NotSupported = bindings::EOPNOTSUPP as i32,
    AddressFamilyNotSupported = bindings::EAFNOSUPPORT as i32,
    AddressInUse = bindings::EADDRINUSE as i32,
    AddressNotAvailable = bindings::EADDRNOTAVAIL as i32,
    NetDown = bindings::ENETDOWN as i32,
    NetUnreachable = bindings::ENETUNREACH as i32,
    ConnectionReset = bindings::ECONNRESET as i32,
    NoBufferSpace = bindings::ENOBUFS as i32,
    NotConnected = bindings::ENOTCONN as i32,
    TimedOut = bindings::ETIMEDOUT as i32,
    ConnectionRefused = bindings::ECONNREFUSED as i32,
    DestinationRequired = bindings::EDESTADDRREQ as i32,
    MessageTooLong = bindings::EMSGSIZE as i32,
    /// The socket core handles the ioctl instead. No program sees this number.
    NoIoctlCommand = bindings::ENOIOCTLCMD as i32,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        // CAST: the discriminants are the positive error numbers.
        Error::from_errno(-(errno as i32))
    }
}
