// SPDX-License-Identifier: GPL-2.0

//! Bytes in a program's memory.

use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice},
};

/// Reads `len` bytes from a program's address, once. Fails with EFAULT or ENOMEM. May sleep.
pub(crate) fn read(addr: u64, len: usize) -> Result<KVec<u8>> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    let mut bytes = KVec::new();
    UserSlice::new(UserPtr::from_addr(addr), len).read_all(&mut bytes, GFP_KERNEL_ACCOUNT)?;
    Ok(bytes)
}
