// SPDX-License-Identifier: GPL-2.0

//! `kernel::error`.

use core::{convert::Infallible, num::TryFromIntError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(i32);

impl Error {
    pub const fn from_errno(errno: i32) -> Self {
        Self(errno)
    }

    pub fn to_errno(self) -> i32 {
        self.0
    }
}

pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// Converts the result of a C function.
pub fn to_result(ret: i32) -> Result {
    match ret {
        0.. => Ok(()),
        errno => Err(Error(errno)),
    }
}

pub mod code {
    use super::Error;

    macro_rules! codes {
        ($($name:ident = $number:literal),*) => {
            $(pub const $name: Error = Error::from_errno(-$number);)*
        };
    }
    codes!(
        EIO = 5,
        EAGAIN = 11,
        ENOMEM = 12,
        EBUSY = 16,
        ENOSPC = 28,
        ENODEV = 19,
        EINVAL = 22
    );
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<TryFromIntError> for Error {
    fn from(_: TryFromIntError) -> Self {
        code::EINVAL
    }
}

impl From<crate::alloc::AllocError> for Error {
    fn from(_: crate::alloc::AllocError) -> Self {
        code::ENOMEM
    }
}

impl<T> From<crate::alloc::PushError<T>> for Error {
    fn from(_: crate::alloc::PushError<T>) -> Self {
        code::EINVAL
    }
}
