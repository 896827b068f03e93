// SPDX-License-Identifier: GPL-2.0

//! Who may use memory that is mapped for a protection domain.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// Set in [`Domain::users`] when no queue pair may be made any more.
const CLOSED: u32 = 1 << 31;

/// What queue pairs and the memory that they use have in common.
///
/// It outlives the [`Pd`](super::Pd) for as long as someone compares with it, so that its address
/// names one protection domain for ever.
pub(super) struct Domain {
    /// Number of queue pairs, and [`CLOSED`].
    users: Atomic<u32>,
}

impl Domain {
    pub(super) const fn new() -> Self {
        Self {
            users: Atomic::new(0),
        }
    }

    /// Counts a queue pair in, unless the domain is closed.
    pub(super) fn enter(this: &Arc<Self>) -> Result<DomainUse> {
        let users = &this.users;
        let mut old = users.load(ordering::Relaxed);
        loop {
            if old & CLOSED != 0 {
                return Err(ENODEV);
            }
            match users.cmpxchg(old, old.wrapping_add(1), ordering::Full) {
                Ok(_) => return Ok(DomainUse(this.clone())),
                Err(now) => old = now,
            }
        }
    }

    /// From now on no queue pair can be made. `EBUSY`, and nothing changed, if there is one.
    pub(super) fn close(&self) -> Result {
        match self.users.cmpxchg(0, CLOSED, ordering::Full) {
            Ok(_) | Err(CLOSED) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }
}

/// The share of a queue pair in its [`Domain`]: while there is one, no memory of it is unmapped.
pub(super) struct DomainUse(Arc<Domain>);

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, ordering::Full);
    }
}
