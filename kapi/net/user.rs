// SPDX-License-Identifier: GPL-2.0

//! What a program points to: in arguments of ioctls, and in what options and control messages say.

use kernel::{
    prelude::*,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
};

/// The address as the kernel counts. Fails with EFAULT if there is none such.
fn slice(addr: u64, len: usize) -> Result<UserSlice> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    Ok(UserSlice::new(UserPtr::from_addr(addr), len))
}

/// Reads a value at a program's address. Fails with EFAULT. May sleep.
pub(crate) fn read<T: FromBytes>(addr: u64) -> Result<T> {
    slice(addr, size_of::<T>())?.reader().read()
}

/// Reads `len` bytes from a program's address, once. Fails with EFAULT or ENOMEM. May sleep.
pub(crate) fn read_bytes(addr: u64, len: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::new();
    slice(addr, len)?.read_all(&mut bytes, GFP_KERNEL_ACCOUNT)?;
    Ok(bytes)
}

/// Writes a value, in the machine's order, to a program's address. Fails with EFAULT. May sleep.
pub(crate) fn write<T: AsBytes>(addr: u64, value: T) -> Result {
    slice(addr, size_of::<T>())?.writer().write(&value)
}
