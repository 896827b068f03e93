// SPDX-License-Identifier: GPL-2.0

//! Cache of the devices of addresses, read without a lock.
//!
//! # Operation
//!
//! The table has a fixed size and consists of sets of a few slots. An address maps to one set and
//! may use any slot of it.
//!
//! Each answer is marked with the epoch in which its lookup began. An event begins a new epoch with
//! one atomic addition, which invalidates all answers. This includes lookups in progress, because
//! they began in the old epoch.
//!
//! A reader sees a slot completely or not at all. The slot's sequence number is odd while it is
//! written, and different afterwards. A reader that misses a slot repeats the lookup, which is slow
//! but correct.
//!
//! # Context
//!
//! Any context. Readers need no lock; writers need the [`TableWriter`], which the caller keeps
//! under a lock.
//!
//! # Build
//!
//! The file needs only `core`. So `tests/host` compiles it as well, and `tests/loom` with other
//! atomics. The module uses the atomics of `core` because those of the kernel call a function for
//! each load, unless helpers are inlined. No other code accesses these words.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use super::atomic::{
    fence,
    AtomicU64,
    Ordering::{
        Acquire,
        Relaxed,
        Release,
        SeqCst, //
    }, //
};
use core::{
    net::Ipv6Addr,
    ops::Deref, //
};

/// Number of slots in a set.
pub(crate) const WAYS: usize = 4;

/// An address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct AddrKey {
    high: u64,
    low: u64,
    scope: u32,
}

impl AddrKey {
    /// Creates a key from the halves of an IPv6 or IPv4-mapped address. `scope` is that of a
    /// link-local address, otherwise 0.
    #[inline]
    pub(crate) fn new((high, low): (u64, u64), scope: u32) -> Self {
        Self { high, low, scope }
    }

    pub(crate) fn addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.high) << 64 | u128::from(self.low))
    }

    pub(crate) fn scope(&self) -> u32 {
        self.scope
    }

    /// Returns the index of the set, less than `N`. Only addresses of this node are in the table,
    /// so peers cannot provoke collisions.
    #[inline]
    fn set<const N: usize>(&self) -> usize {
        const { assert!(N.is_power_of_two() && N <= 1 << 16) };
        let mixed = (self.low ^ self.high.rotate_left(29) ^ u64::from(self.scope).rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: less than `N`.
        (mixed >> 48) as usize & N.wrapping_sub(1)
    }
}

/// The time between two events, in which the addresses do not change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Epoch(u64);

/// The number of the device that has an address, or `None` if no device has it.
pub(crate) type Answer = Option<u32>;

/// Storage for one answer.
pub(crate) struct AddrSlot {
    /// Odd while the other fields are being written.
    sequence: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    /// Scope in the upper half. The lower half has [`HAS_DEVICE`] and the device number.
    scope_and_device: AtomicU64,
    /// 0 if the slot was never written; epochs begin with 1.
    epoch: AtomicU64,
}

/// Flag for an answer with a device. Device numbers have 31 bits, so this bit is free.
const HAS_DEVICE: u64 = 1 << 31;

impl AddrSlot {
    const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
            scope_and_device: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    #[inline]
    fn read(&self, key: &AddrKey, epoch: u64) -> Option<Answer> {
        let before = self.sequence.load(Acquire);
        if !self.has(key) || self.epoch.load(Relaxed) != epoch {
            return None;
        }
        let scope_and_device = self.scope_and_device.load(Relaxed);
        fence(Acquire);
        if before & 1 != 0 || self.sequence.load(Relaxed) != before {
            return None;
        }
        // CAST: the lower half without its top bit, which the number never uses.
        Some(
            (scope_and_device & HAS_DEVICE != 0)
                .then_some((scope_and_device & (HAS_DEVICE - 1)) as u32),
        )
    }

    #[inline]
    /// Returns `true` if the slot has held the address in any epoch. For writers.
    fn has(&self, key: &AddrKey) -> bool {
        self.low.load(Relaxed) == key.low
            && self.high.load(Relaxed) == key.high
            && self.scope_and_device.load(Relaxed) >> 32 == u64::from(key.scope)
    }

    fn write(&self, key: &AddrKey, epoch: u64, answer: Answer) {
        let before = self.sequence.load(Relaxed);
        self.sequence.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        self.high.store(key.high, Relaxed);
        self.low.store(key.low, Relaxed);
        let device = answer.map_or(0, |number| u64::from(number) | HAS_DEVICE);
        self.scope_and_device
            .store(u64::from(key.scope) << 32 | device, Relaxed);
        self.epoch.store(epoch, Relaxed);
        self.sequence.store(before.wrapping_add(2), Release);
    }
}

/// A set of slots, shared by the addresses with the same hash.
pub(crate) struct Set([AddrSlot; WAYS]);

impl Set {
    pub(crate) const fn new() -> Self {
        Self([const { AddrSlot::new() }; WAYS])
    }
}

/// The permission to write. Also selects the slot to replace in a full set.
pub(crate) struct TableWriter {
    victim: usize,
}

impl TableWriter {
    pub(crate) const fn new() -> Self {
        Self { victim: 0 }
    }
}

/// A table of `N` sets, where `N` is a power of two.
pub(crate) struct AddrTable<S, const N: usize> {
    epoch: AtomicU64,
    sets: S,
}

impl<S: Deref<Target = [Set; N]>, const N: usize> AddrTable<S, N> {
    pub(crate) fn new(sets: S) -> Self {
        Self {
            epoch: AtomicU64::new(1),
            sets,
        }
    }

    /// Returns the current epoch. A lookup reads it before anything on which the answer depends.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // Pairs with `flush`: a reader of its epoch also sees the change that came before it.
        Epoch(self.epoch.load(Acquire))
    }

    /// Invalidates all answers after a change.
    pub(crate) fn flush(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    #[inline]
    fn set(&self, key: &AddrKey) -> &[AddrSlot] {
        self.sets.get(key.set::<N>()).map_or(&[], |set| &set.0)
    }

    /// Returns the answer if it is cached.
    #[inline(always)]
    pub(crate) fn get(&self, key: &AddrKey) -> Option<Answer> {
        let Epoch(epoch) = self.epoch();
        self.set(key).iter().find_map(|slot| slot.read(key, epoch))
    }

    /// Stores the answer of a lookup that began in the given epoch, unless that is over. Replaces
    /// another answer if the set is full.
    pub(crate) fn insert(
        &self,
        writer: &mut TableWriter,
        key: &AddrKey,
        answer: Answer,
        Epoch(epoch): Epoch,
    ) {
        if self.epoch.load(Relaxed) != epoch {
            return;
        }
        let set = self.set(key);
        let slot = set
            .iter()
            .find(|slot| slot.has(key))
            .or_else(|| set.iter().find(|slot| slot.epoch.load(Relaxed) != epoch))
            .or_else(|| {
                writer.victim = writer.victim.wrapping_add(1) % WAYS;
                set.get(writer.victim)
            });
        if let Some(slot) = slot {
            slot.write(key, epoch, answer);
        }
    }
}
