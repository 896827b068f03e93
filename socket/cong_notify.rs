// SPDX-License-Identifier: GPL-2.0

//! Notifications about ports that were congested.
//!
//! `tests/loom` also compiles this file.

use crate::kapi::sync::ReadOnce;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// There is no notification for `poll(2)`.
const NONE: u32 = 0;
/// There is a notification that was not reported yet.
const PENDING: u32 = 1;
/// There is a notification that was reported.
const REPORTED: u32 = 2;

/// Notification about ports that a send was held back for and that may have room again.
///
/// A socket with `RDS_CONG_MONITOR` reads the ports with `recvmsg(2)`. For any other socket,
/// `poll(2)` reports that there are some.
pub(crate) struct CongNotify {
    /// The socket has `RDS_CONG_MONITOR`.
    monitor: Atomic<bool>,
    /// State for `poll(2)`: one of the values above.
    any: Atomic<u32>,
    /// State for `recvmsg(2)`: bit p stands for the ports that are p modulo 64.
    ports: Atomic<u64>,
    /// A call without room for `ports` was notified of their existence, so later ones are not.
    short_reported: Atomic<bool>,
}

impl CongNotify {
    pub(super) const fn new() -> Self {
        Self {
            monitor: Atomic::new(false),
            any: Atomic::new(NONE),
            ports: Atomic::new(0),
            short_reported: Atomic::new(false),
        }
    }

    /// Sets `RDS_CONG_MONITOR`. Unreported notifications are then reported in the other way. The
    /// caller wakes waiters.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn set_monitor(&self, on: bool) {
        self.monitor.store(on, Relaxed);
        if !on && self.ports.read_once() != 0 {
            self.any.store(PENDING, Relaxed);
        }
    }

    /// Returns `true` if the socket has `RDS_CONG_MONITOR`.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn is_monitor(&self) -> bool {
        self.monitor.read_once()
    }

    /// Notes that some ports may have room again. `refused` has those for which a send failed with
    /// `ENOBUFS`. The caller wakes waiters.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn add(&self, refused: u64) {
        // Both states are set, because the program may switch the option. The code that reports one
        // of them clears the other; `forget` relies on this order.
        if refused != 0 || !self.is_monitor() {
            self.any.store(PENDING, Release);
        }
        if refused != 0 {
            self.put_back(refused);
            // A monitor may have cleared `any` before the ports were stored, and the option may be
            // off by now.
            if self.ports.read_once() != 0 {
                let _ = self.any.cmpxchg(NONE, PENDING, Full);
            }
        }
    }

    /// Returns `true` if there is a notification for `poll(2)`. It is reported until
    /// [`Self::ack_reported`], because epoll polls when it starts to watch a socket and again
    /// before it reports.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn report_any(&self) -> bool {
        let any = self.any.read_once();
        if any == PENDING {
            // On failure, another call has reported it, or it is cleared already.
            let _ = self.any.cmpxchg(PENDING, REPORTED, Full);
        }
        any != NONE
    }

    /// Clears a notification that `poll(2)` has reported. Called on send and on an empty receive;
    /// otherwise `poll(2)` would report `POLLIN` forever.
    ///
    /// Unreported notifications stay, and so do ports that a monitor has to read.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn ack_reported(&self) {
        if self.any.read_once() == REPORTED && !self.is_monitor() {
            self.forget();
        }
    }

    #[cold]
    fn forget(&self) {
        // `add` first sets `any` and then stores the ports. If ports taken here were stored
        // meanwhile, `any` is `PENDING` by now, and they are put back.
        let ports = self.ports.xchg(0, Full);
        if self.any.cmpxchg(REPORTED, NONE, Full).is_err() && ports != 0 {
            self.put_back(ports);
        }
    }

    /// Returns the ports that `recvmsg(2)` has to report.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn ports(&self) -> u64 {
        match self.ports.read_once() {
            0 => 0,
            ports if self.is_monitor() => ports,
            _ => 0,
        }
    }

    /// Returns `true` if a reader need not wait: there are such ports, and no call was notified of
    /// them without room.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.ports() != 0 && !self.short_reported.read_once()
    }

    /// Notes that a call has no room for the ports, which stay. Returns `true` for the first such
    /// call.
    pub(crate) fn report_short(&self) -> bool {
        self.is_due() && !self.short_reported.xchg(true, Full)
    }

    /// Takes the ports that [`Self::ports`] returns. A caller that cannot report them passes them
    /// to [`Self::add`].
    pub(crate) fn take_ports(&self) -> u64 {
        self.any.xchg(NONE, Full);
        self.ports.xchg(0, Full)
    }

    /// Adds ports to those that `recvmsg(2)` has to report.
    fn put_back(&self, ports: u64) {
        let mut old = self.ports.read_once();
        while let Err(now) = self.ports.cmpxchg(old, old | ports, Full) {
            old = now;
        }
        self.short_reported.store(false, Relaxed);
    }
}
