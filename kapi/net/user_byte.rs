// SPDX-License-Identifier: GPL-2.0

//! Single bytes of a program's memory, for ioctls.

use crate::bindings;
use kernel::{error::to_result, prelude::*};

/// Reads the byte at a program's address. Fails with EFAULT. May sleep.
pub(crate) fn read(addr: usize) -> Result<u8> {
    let mut byte = 0;
    // SAFETY: The function checks the address itself; the result goes to a local variable.
    to_result(unsafe { bindings::rds_get_user_u8(addr, &mut byte) })?;
    Ok(byte)
}

/// Writes a byte to a program's address. Fails with EFAULT. May sleep.
pub(crate) fn write(addr: usize, byte: u8) -> Result {
    // SAFETY: The function checks the address itself.
    to_result(unsafe { bindings::rds_put_user_u8(addr, byte) })
}
