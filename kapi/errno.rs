// SPDX-License-Identifier: GPL-2.0

//! Socket error numbers that `kernel::error::code` lacks.
//!
//! C header: `include/uapi/asm-generic/errno.h`

use kernel::prelude::*;

/// An error number of the socket interface. The `?` operator converts it to
/// [`kernel::error::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Errno {
    NoProtocolOption = 92,
    WrongProtocolType = 91,
    SocketTypeNotSupported = 94,
    NotSupported = 95,
    AddressFamilyNotSupported = 97,
    AddressInUse = 98,
    AddressNotAvailable = 99,
    NetDown = 100,
    NetUnreachable = 101,
    ConnectionReset = 104,
    NoBufferSpace = 105,
    NotConnected = 107,
    TimedOut = 110,
    ConnectionRefused = 111,
    DestinationRequired = 89,
    MessageTooLong = 90,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        // CAST: the discriminants are the positive error numbers.
        Error::from_errno(-(errno as i32))
    }
}
