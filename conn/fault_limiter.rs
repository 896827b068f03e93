// SPDX-License-Identifier: GPL-2.0

//! Tracks users whose operations the peer of a connection refuses. Each refusal ends the link for
//! all users.

use crate::{
    kapi::{
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
        task::UserId,
        time, //
    },
    msg::RdmaOp,
    proto::faults::{
        Admission,
        Faults,
        Standing, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The users whose operations the peer has refused.
#[pin_data]
pub(crate) struct FaultLimiter {
    /// Set while `faults` has entries. Read without the lock.
    any: Atomic<bool>,
    #[pin]
    faults: SpinLockBh<Option<KBox<Faults>>>,
}

impl FaultLimiter {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            faults <- new_spinlock_bh!(None, "FaultLimiter::faults"),
        })
    }

    /// Notes that the peer has refused an operation of a user's socket, which had this standing.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[cold]
    pub(crate) fn note(&self, user: UserId, standing: Standing) {
        let mut faults = self.faults.lock();
        if faults.is_none() {
            // If there is no memory the refusal is not remembered.
            *faults = KBox::new(Faults::new(), GFP_ATOMIC).ok();
            self.any.store(faults.is_some(), Relaxed);
        }
        if let Some(faults) = &mut *faults {
            faults.note(user.number(), standing, time::monotonic_ns());
        }
    }

    /// Notes that a link is up again.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn recover(&self) {
        if !self.any.read_once() {
            return;
        }
        if let Some(faults) = &mut *self.faults.lock() {
            faults.recover(time::monotonic_ns());
        }
    }

    /// Admits an operation of a user's socket.
    ///
    /// # Errors
    ///
    /// If the operation must wait, returns the nanoseconds after which the caller may ask again.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(crate) fn admit(&self, user: UserId, standing: Standing) -> Result<Admission, u64> {
        if !self.any.read_once() {
            return Ok(Admission::default());
        }
        let now = time::monotonic_ns();
        let mut faults = self.faults.lock();
        let result = match &mut *faults {
            Some(faults) => faults.admit(user.number(), standing, now),
            None => Ok(()),
        };
        let forgotten = faults.take_if(|faults| faults.is_forgotten(now));
        if forgotten.is_some() {
            // Callers skip the lock until the next refusal.
            self.any.store(false, Relaxed);
        }
        drop(faults);
        result.map(|()| Admission(now))
    }

    /// Returns `true` if an operation has to end instead of being posted: it was queued before a
    /// refusal that delays its socket.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(super) fn ends(&self, operation: &RdmaOp) -> bool {
        if !self.any.read_once() || operation.has_begun() {
            return false;
        }
        let (user, standing) = operation.owner();
        let now = time::monotonic_ns();
        match &mut *self.faults.lock() {
            Some(faults) => faults.is_outdated(user.number(), standing, operation.admission, now),
            None => false,
        }
    }
}
