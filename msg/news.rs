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
}

impl News {
    pub(super) const fn new() -> Self {
        Self {
            monitor: Atomic::new(false),
            any: Atomic::new(false),
            ports: Atomic::new(0),
        }
    }

    /// Sets `RDS_CONG_MONITOR`. What there was for `recvmsg(2)` is forgotten when that ends. Any context.
    pub(crate) fn set_monitor(&self, on: bool) {
        self.monitor.store(on, Relaxed);
        if !on {
            self.ports.store(0, Relaxed);
        }
    }

    /// Whether the socket has `RDS_CONG_MONITOR`. Any context.
    pub(crate) fn is_monitor(&self) -> bool {
        self.monitor.peek()
    }

    /// Some of these ports may have room again; `refused` says whether a send got ENOBUFS for one of them.
    /// The caller wakes who may wait. Any context.
    pub(crate) fn add(&self, ports: u64, refused: bool) {
        if !self.is_monitor() {
            self.any.store(true, Relaxed);
        } else if refused {
            self.put_back(ports);
        }
    }

    /// Whether there is news for `poll(2)`, which is told once.
    pub(crate) fn take_any(&self) -> bool {
        self.any.peek() && self.any.xchg(false, Full)
    }

    /// The ports that `recvmsg(2)` has to tell of. Any context.
    #[inline]
    pub(crate) fn ports(&self) -> u64 {
        self.ports.peek()
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
    }
}
