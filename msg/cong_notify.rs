// SPDX-License-Identifier: GPL-2.0

//! What a socket is told about ports that were congested.
//!
//! `tests/loom` compiles the file, too.

use crate::kapi::sync::Peek;
use kernel::sync::atomic::{Atomic, Full, Relaxed, Release};

/// There is no news for `poll(2)`.
const NONE: u32 = 0;
/// There is some that nobody was told.
const FRESH: u32 = 1;
/// There is some, and it was told.
const TOLD: u32 = 2;

/// News of ports that a send was held back for and that may have room again.
///
/// A socket with `RDS_CONG_MONITOR` reads which ports those are, any other one is told by `poll(2)` that
/// there are some.
pub(crate) struct CongNotify {
    /// Whether the socket has `RDS_CONG_MONITOR`.
    monitor: Atomic<bool>,
    /// For `poll(2)`: one of the values above.
    any: Atomic<u32>,
    /// For `recvmsg(2)`: bit p is for the ports that are p modulo 64.
    ports: Atomic<u64>,
    /// A call without room for `ports` was told that there are some: it is not told again.
    told_short: Atomic<bool>,
}

impl CongNotify {
    pub(super) const fn new() -> Self {
        Self {
            monitor: Atomic::new(false),
            any: Atomic::new(NONE),
            ports: Atomic::new(0),
            told_short: Atomic::new(false),
        }
    }

    /// Sets `RDS_CONG_MONITOR`. What nobody was told yet is left to the other way to tell it. The caller wakes who
    /// may wait. Any context.
    pub(crate) fn set_monitor(&self, on: bool) {
        self.monitor.store(on, Relaxed);
        if !on && self.ports.peek() != 0 {
            self.any.store(FRESH, Relaxed);
        }
    }

    /// Whether the socket has `RDS_CONG_MONITOR`. Any context.
    pub(crate) fn is_monitor(&self) -> bool {
        self.monitor.peek()
    }

    /// Some ports may have room again; `refused` are those that a send got ENOBUFS for. The caller wakes who
    /// may wait. Any context.
    pub(crate) fn add(&self, refused: u64) {
        // For both ways, as the program may change its mind. Whoever tells the one takes the other back; `forget` relies
        // on this order.
        if refused != 0 || !self.is_monitor() {
            self.any.store(FRESH, Release);
        }
        if refused != 0 {
            self.put_back(refused);
            // A monitor may have taken the one back before the other was there, and be none by now.
            if self.ports.peek() != 0 {
                let _ = self.any.cmpxchg(NONE, FRESH, Full);
            }
        }
    }

    /// Whether there is news for `poll(2)`. All who ask are told until [`Self::heed`]: epoll asks as soon as it is to
    /// watch a socket, and once more before it reports. Any context.
    pub(crate) fn tell_any(&self) -> bool {
        let any = self.any.peek();
        if any == FRESH {
            // If that fails somebody else is told, or it is heeded already.
            let _ = self.any.cmpxchg(FRESH, TOLD, Full);
        }
        any != NONE
    }

    /// The program sends, or finds nothing to receive: what `poll(2)` has told it is no news any more, or it would be told that there is
    /// something to read for ever. What nobody was told stays, and so do the ports that a monitor has to read. Any
    /// context.
    #[inline]
    pub(crate) fn heed(&self) {
        if self.any.peek() == TOLD && !self.is_monitor() {
            self.forget();
        }
    }

    #[cold]
    fn forget(&self) {
        // `add` first says that there is news and then adds the ports. So if ports are taken here that came
        // meanwhile, there is FRESH news by now, and they are put back.
        let ports = self.ports.xchg(0, Full);
        if self.any.cmpxchg(TOLD, NONE, Full).is_err() && ports != 0 {
            self.put_back(ports);
        }
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

    /// As [`Self::ports`], and the next call returns none. Who then does not tell of them calls
    /// [`Self::add`].
    pub(crate) fn take_ports(&self) -> u64 {
        self.any.xchg(NONE, Full);
        self.ports.xchg(0, Full)
    }

    /// Adds to what `recvmsg(2)` has to tell of.
    fn put_back(&self, ports: u64) {
        let mut old = self.ports.peek();
        while let Err(now) = self.ports.cmpxchg(old, old | ports, Full) {
            old = now;
        }
        self.told_short.store(false, Relaxed);
    }
}
