// SPDX-License-Identifier: GPL-2.0

//! `SO_TIMESTAMP` and its kin: when a message arrived, in a control message.
//!
//! C header: [`include/uapi/asm-generic/socket.h`](srctree/include/uapi/asm-generic/socket.h)

use super::{Aligned, Protocol, RecvMsg, Sock};
use crate::bindings;
use kernel::prelude::*;

const SOL_SOCKET: c_int = 1;

/// The options' numbers, which are those of the control messages, too.
pub(crate) const SO_TIMESTAMP_OLD: c_int = 29;
pub(crate) const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_OLD: c_int = 35;
const SO_TIMESTAMPNS_NEW: c_int = 64;

impl<T: Protocol> Sock<T> {
    /// Switches `SO_TIMESTAMP` on or off, by the newer of its two numbers or not. May sleep.
    pub(crate) fn set_timestamps(&self, on: bool, new: bool) {
        // SAFETY: `self` is alive by the type invariants.
        unsafe { bindings::rds_sk_set_timestamps(self.as_raw(), on, new) }
    }

    /// Tells the reader when a message arrived, in nanoseconds since 1970, the way that it asked for, if it
    /// did. Fails with EFAULT. May sleep.
    pub(crate) fn put_timestamp(&self, msg: &mut RecvMsg<'_>, ns: u64) -> Result {
        const ON: u32 = 1;
        const NANOS: u32 = 2;
        const NEW: u32 = 4;
        const NS_PER_S: u64 = 1_000_000_000;
        const NS_PER_US: u64 = 1000;

        // SAFETY: `self` is alive by the type invariants.
        let asked = unsafe { bindings::rds_sk_timestamps(self.as_raw()) };
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
        // All four have two numbers of 64 bits on a 64-bit kernel; the kernel cuts them for a 32-bit program.
        let mut data = [0; 16];
        let (seconds, rest) = data.split_at_mut(8);
        seconds.copy_from_slice(&(ns / NS_PER_S).to_ne_bytes());
        rest.copy_from_slice(&part.to_ne_bytes());
        msg.put_control(SOL_SOCKET, kind, &Aligned(data))
    }
}
