// SPDX-License-Identifier: GPL-2.0

//! Users whose operations the peer of a connection refuses.
//!
//! Each such operation ends the link for all.

use crate::kapi::{
    sync::{new_spinlock_bh, Peek, SpinLockBh},
    task::UserId,
    time,
};
use crate::proto::faults::{Faults, Standing};
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// These users.
#[pin_data]
pub(crate) struct Offenders {
    /// There are some.
    any: Atomic<bool>,
    #[pin]
    faults: SpinLockBh<Option<KBox<Faults>>>,
}

impl Offenders {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            faults <- new_spinlock_bh!(None, "Offenders::faults"),
        })
    }

    /// Notes that the peer has refused an operation of a user's socket, of which this was the
    /// standing. Any context but a hard interrupt.
    #[cold]
    pub(crate) fn note(&self, user: UserId, standing: Standing) {
        let mut faults = self.faults.lock();
        if faults.is_none() {
            // Without memory it is as if nothing had been.
            *faults = KBox::new(Faults::new(), GFP_ATOMIC).ok();
            self.any.store(faults.is_some(), Relaxed);
        }
        if let Some(faults) = &mut *faults {
            faults.note(user.number(), standing, time::monotonic_ns());
        }
    }

    /// There is a link again. Any context but a hard interrupt.
    pub(super) fn recover(&self) {
        if !self.any.peek() {
            return;
        }
        if let Some(faults) = &mut *self.faults.lock() {
            faults.recover(time::monotonic_ns());
        }
    }

    /// Lets an operation of a user's socket go now, or returns after how many nanoseconds the
    /// caller may ask again. Any context but a hard interrupt.
    #[inline]
    pub(crate) fn turn(&self, user: UserId, standing: Standing) -> Result<(), u64> {
        if !self.any.peek() {
            return Ok(());
        }
        let now = time::monotonic_ns();
        let mut faults = self.faults.lock();
        let turn = match &mut *faults {
            Some(faults) => faults.turn(user.number(), standing, now),
            None => Ok(()),
        };
        let forgotten = faults.take_if(|faults| faults.is_forgotten(now));
        if forgotten.is_some() {
            // Nobody needs the lock until there is another one.
            self.any.store(false, Relaxed);
        }
        drop(faults);
        turn
    }
}
