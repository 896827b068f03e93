// SPDX-License-Identifier: GPL-2.0

//! Receive timestamps in control messages: `SO_TIMESTAMP` and its variants.
//!
//! C header: [`include/uapi/asm-generic/socket.h`](srctree/include/uapi/asm-generic/socket.h)

use super::{
    Aligned,
    Protocol,
    RecvMsg,
    Sock, //
};
use crate::bindings;
use kernel::prelude::*;

// CAST: levels and options are small numbers.
const SOL_SOCKET: c_int = bindings::SOL_SOCKET as c_int;

/// Option numbers. The control messages have the same numbers.
pub(crate) const SO_TIMESTAMP_OLD: c_int = bindings::SO_TIMESTAMP_OLD as c_int;
pub(crate) const SO_TIMESTAMP_NEW: c_int = bindings::SO_TIMESTAMP_NEW as c_int;
const SO_TIMESTAMPNS_OLD: c_int = bindings::SO_TIMESTAMPNS_OLD as c_int;
const SO_TIMESTAMPNS_NEW: c_int = bindings::SO_TIMESTAMPNS_NEW as c_int;

impl<T: Protocol> Sock<T> {
    /// Enables or disables `SO_TIMESTAMP`. `new` selects `SO_TIMESTAMP_NEW` (64-bit time for all
    /// programs).
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn set_timestamps(&self, on: bool, new: bool) {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_rust_sk_set_timestamps(self.as_raw(), on, new) }
    }

    /// Passes the receive time, in nanoseconds since 1970, to the program in the format that it
    /// selected. Does nothing if the program did not ask for timestamps.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the program's memory cannot be written.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn put_timestamp(&self, msg: &mut RecvMsg<'_>, ns: u64) -> Result {
        const ON: u32 = 1;
        const NANOS: u32 = 2;
        const NEW: u32 = 4;
        const NS_PER_S: u64 = 1_000_000_000;
        const NS_PER_US: u64 = 1000;

        // SAFETY: `self` is alive by the type invariants.
        let asked = unsafe { bindings::rds_rust_sk_timestamps(self.as_raw()) };
        if asked & ON == 0 {
            return Ok(());
        }
        let (nanos, new) = (asked & NANOS != 0, asked & NEW != 0);
        let kind = match (nanos, new) {
            (false, false) => SO_TIMESTAMP_OLD,
            (false, true) => SO_TIMESTAMP_NEW,
            (true, false) => SO_TIMESTAMPNS_OLD,
            (true, true) => SO_TIMESTAMPNS_NEW,
        };
        let part = ns % NS_PER_S;
        let part = if nanos { part } else { part / NS_PER_US };
        // On a 64-bit kernel all four formats are two 64-bit numbers. The kernel converts them for
        // 32-bit programs.
        let mut data = [0; 16];
        let (seconds, rest) = data.split_at_mut(8);
        seconds.copy_from_slice(&(ns / NS_PER_S).to_ne_bytes());
        rest.copy_from_slice(&part.to_ne_bytes());
        msg.put_control(SOL_SOCKET, kind, &Aligned(data))
    }
}
