// SPDX-License-Identifier: GPL-2.0

//! What a socket is told about ports that were congested.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// News of ports that a send was held back for and that may have room again.
///
/// A socket with `RDS_CONG_MONITOR` reads which ports those are, any other one is told by `poll(2)` that
/// there are some.
pub(crate) struct News {
    /// Whether the socket has `RDS_CONG_MONITOR`.
    monitor: Atomic<bool>,
    /// For `poll(2)`, once.
    any: Atomic<bool>,
    /// For `recvmsg(2)`: bit p is for the ports that are p modulo 64.
    ports: Atomic<u64>,
    /// A call without room for `ports` was told that there are some: it is not told again.
    told_short: Atomic<bool>,
}

impl News {
    pub(super) const fn new() -> Self {
        Self {
            monitor: Atomic::new(false),
            any: Atomic::new(false),
            ports: Atomic::new(0),
            told_short: Atomic::new(false),
        }
    }

    /// Sets `RDS_CONG_MONITOR`. When it ends, what nobody has read is left to `poll(2)`. The caller wakes
    /// who may wait. Any context.
    pub(crate) fn set_monitor(&self, on: bool) {
        let before = self.monitor.xchg(on, Full);
        if before != on && self.ports.xchg(0, Full) != 0 && !on {
            self.any.store(true, Relaxed);
        }
    }

    /// Whether the socket has `RDS_CONG_MONITOR`. Any context.
    pub(crate) fn is_monitor(&self) -> bool {
        self.monitor.peek()
    }

    /// Some ports may have room again; `refused` are those that a send got ENOBUFS for. The caller wakes who
    /// may wait. Any context.
    pub(crate) fn add(&self, refused: u64) {
        if !self.is_monitor() {
            self.any.store(true, Relaxed);
        } else if refused != 0 {
            self.put_back(refused);
        }
    }

    /// Whether there is news for `poll(2)`, which is told once.
    pub(crate) fn take_any(&self) -> bool {
        self.any.peek() && self.any.xchg(false, Full)
    }

    /// The ports that `recvmsg(2)` has to tell of. Any context.
    #[inline]
    pub(crate) fn ports(&self) -> u64 {
        match self.ports.peek() {
            0 => 0,
            ports if self.is_monitor() => ports,
            _ => 0,
        }
    }

    /// Whether to wait for nothing else: there are such ports, and no call was told of them in vain.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.ports() != 0 && !self.told_short.peek()
    }

    /// Notes that a call has no room for the ports; they stay. Returns whether it is the first one.
    pub(crate) fn tell_short(&self) -> bool {
        self.is_due() && !self.told_short.xchg(true, Full)
    }

    /// As [`Self::ports`], and the next call returns none.
    pub(crate) fn take_ports(&self) -> u64 {
        self.ports.xchg(0, Full)
    }

    /// Adds to what `recvmsg(2)` has to tell of. Any context.
    pub(crate) fn put_back(&self, ports: u64) {
        let mut old = self.ports.peek();
        while let Err(now) = self.ports.cmpxchg(old, old | ports, Full) {
            old = now;
        }
        self.told_short.store(false, Relaxed);
    }
}
