// SPDX-License-Identifier: GPL-2.0

//! Single numbers in a program's memory.

use crate::bindings;
use kernel::{error::to_result, prelude::*};

/// Reads the byte at a program's address. Fails with EFAULT. May sleep.
pub(crate) fn read(addr: usize) -> Result<u8> {
    let mut byte = 0;
    // SAFETY: The function checks the address itself; the result goes to a local variable.
    to_result(unsafe { bindings::rds_get_user_u8(addr, &mut byte) })?;
    Ok(byte)
}

/// Writes eight bytes, in the machine's order, to a program's address. Fails with EFAULT. May sleep.
pub(crate) fn write_u64(addr: u64, value: u64) -> Result {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    // SAFETY: The function checks the address itself.
    to_result(unsafe { bindings::rds_put_user_u64(addr, value) })
}

/// Writes a byte to a program's address. Fails with EFAULT. May sleep.
pub(crate) fn write(addr: usize, byte: u8) -> Result {
    // SAFETY: The function checks the address itself.
    to_result(unsafe { bindings::rds_put_user_u8(addr, byte) })
}
