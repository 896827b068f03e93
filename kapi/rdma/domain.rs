// SPDX-License-Identifier: GPL-2.0

//! State that a protection domain shares with its queue pairs and their memory.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// Flag in [`Domain::users`]: no queue pair may be created any more.
const CLOSED: u32 = 1 << 31;

/// Identity and shared state of a protection domain.
///
/// It may outlive the [`Pd`](super::Pd), because objects hold it for comparison. So its address
/// identifies one protection domain and is not reused meanwhile.
pub(super) struct Domain {
    /// Number of queue pairs, and the flag [`CLOSED`].
    users: Atomic<u32>,
    /// The device has refused an atomic operation (plain, masked), although it claims support.
    no_atomics: [Atomic<bool>; 2],
    /// The device has refused an MR that permits atomic operations of peers.
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

    /// Returns `true` if the device is known to refuse atomic operations. Some devices log each
    /// refusal, so they are not asked again.
    pub(super) fn refuses_atomics(&self, masked: bool) -> bool {
        self.no_atomics(masked).load(ordering::Relaxed)
    }

    pub(super) fn note_no_atomics(&self, masked: bool) {
        self.no_atomics(masked).store(true, ordering::Relaxed);
    }

    /// Returns `true` if the device is known to refuse MRs that permit atomic operations.
    pub(super) fn refuses_atomic_regions(&self) -> bool {
        self.no_atomic_regions.load(ordering::Relaxed)
    }

    pub(super) fn note_no_atomic_regions(&self) {
        self.no_atomic_regions.store(true, ordering::Relaxed);
    }

    /// Counts a new queue pair.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the domain is closed.
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

    /// Prevents creation of queue pairs from now on.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a queue pair; nothing is changed then.
    pub(super) fn close(&self) -> Result {
        match self.users.cmpxchg(0, CLOSED, ordering::Full) {
            Ok(_) | Err(CLOSED) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }
}

/// The count of one queue pair in its [`Domain`].
///
/// While it exists [`Domain::close`] fails, so memory that the queue pair may use stays mapped.
pub(super) struct DomainUse(Arc<Domain>);

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, ordering::Full);
    }
}
