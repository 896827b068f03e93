// SPDX-License-Identifier: GPL-2.0

//! Copies to and from addresses that a program passes in ioctl arguments, options and control
//! messages.

use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// Converts an address to a user slice.
///
/// # Errors
///
/// `EFAULT` if the address does not fit into a pointer.
fn slice(addr: u64, len: usize) -> Result<UserSlice> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(addr), len))
}

/// Reads a value from a program's memory.
///
/// # Errors
///
/// `EFAULT` if the memory cannot be read.
///
/// # Context
///
/// May sleep.
pub(crate) fn read<T: FromBytes>(addr: u64) -> Result<T> {
    slice(addr, size_of::<T>())?.reader().read()
}

/// Reads `len` bytes from a program's memory. Each byte is read once.
///
/// # Errors
///
/// - `EFAULT` if the memory cannot be read.
/// - `ENOMEM` if there is no memory for the copy.
///
/// # Context
///
/// May sleep.
pub(crate) fn read_bytes(addr: u64, len: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::new();
    slice(addr, len)?.read_all(&mut bytes, GFP_KERNEL_ACCOUNT)?;
    Ok(bytes)
}

/// Writes a value, in native byte order, to a program's memory.
///
/// # Errors
///
/// `EFAULT` if the memory cannot be written.
///
/// # Context
///
/// May sleep.
pub(crate) fn write<T: AsBytes>(addr: u64, value: T) -> Result {
    slice(addr, size_of::<T>())?.writer().write(&value)
}
