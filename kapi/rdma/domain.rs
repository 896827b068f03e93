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
    /// The device has refused a plain atomic operation, and one with masks, although it has them by its own word.
    no_atomics: [Atomic<bool>; 2],
    /// It has refused a region for atomic operations of peers.
    no_atomic_regions: Atomic<bool>,
}

impl Domain {
    pub(super) const fn new() -> Self {
        Self {
            users: Atomic::new(0),
            no_atomics: [const { Atomic::new(false) }; 2],
            no_atomic_regions: Atomic::new(false),
        }
    }

    fn no_atomics(&self, masked: bool) -> &Atomic<bool> {
        let [plain, with_masks] = &self.no_atomics;
        if masked {
            with_masks
        } else {
            plain
        }
    }

    /// Whether the device is known to refuse atomic operations. Some log each that they refuse.
    pub(super) fn refuses_atomics(&self, masked: bool) -> bool {
        self.no_atomics(masked).load(ordering::Relaxed)
    }

    pub(super) fn note_no_atomics(&self, masked: bool) {
        self.no_atomics(masked).store(true, ordering::Relaxed);
    }

    /// Whether it is known to refuse regions for them.
    pub(super) fn refuses_atomic_regions(&self) -> bool {
        self.no_atomic_regions.load(ordering::Relaxed)
    }

    pub(super) fn note_no_atomic_regions(&self) {
        self.no_atomic_regions.store(true, ordering::Relaxed);
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
