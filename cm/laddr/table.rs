// SPDX-License-Identifier: GPL-2.0

//! What is known of addresses, to be read without a lock.
//!
//! # Operation
//!
//! A table of fixed size, in sets of a few slots: an address has one set, and takes any slot there.
//! Every answer is marked with the epoch in which its question was asked. An event begins a new
//! epoch, which is one atomic addition, and all that was known before counts no more: also what is
//! being found out at that time, as it was asked in the old epoch.
//!
//! A reader sees a slot as a whole, or not at all: the slot's sequence number is odd while it is
//! written, and another one afterwards. Who does not see it asks again, which is slow and right.
//!
//! # Context
//!
//! Any. Readers need nothing; writers have the [`Writer`], which the caller keeps under a lock.
//!
//! The file needs `core` alone, so that `tests/host` compiles it, too, and `tests/loom` with other atomics.
//! The module's are those of `core` because the kernel's call a function for each load, unless the kernel
//! inlines helpers; nothing else touches these words.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use super::atomic::{
    fence, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use core::{net::Ipv6Addr, ops::Deref};

/// Slots that an address can be in.
pub(crate) const WAYS: usize = 4;

/// An address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AddrKey {
    high: u64,
    low: u64,
    scope: u32,
}

impl AddrKey {
    /// The halves of an IPv6 or a mapped IPv4 address; `scope` is that of a link-local one, or zero.
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

    /// The number of the set, of `N`. Only addresses that this machine has come into the table, so
    /// nobody else has a say in what collides.
    #[inline]
    fn set<const N: usize>(&self) -> usize {
        const { assert!(N.is_power_of_two() && N <= 1 << 16) };
        let mixed = (self.low ^ self.high.rotate_left(29) ^ u64::from(self.scope).rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: less than `N`.
        (mixed >> 48) as usize & N.wrapping_sub(1)
    }
}

/// The time between two events, in which nothing changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch(u64);

/// What is known of an address: the number of the device that has it, or that none has it.
pub(crate) type Answer = Option<u32>;

/// Place for one answer.
pub(crate) struct Slot {
    /// Odd while the rest is being written.
    sequence: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    /// The scope in the upper half; below it whether there is a device, and its number.
    rest: AtomicU64,
    /// 0 where nothing was ever written: epochs begin with 1.
    epoch: AtomicU64,
}

/// Devices have numbers of 31 bits, so there is room for one bit more.
const HAS_DEVICE: u64 = 1 << 31;

impl Slot {
    const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
            rest: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    #[inline]
    fn read(&self, key: &AddrKey, epoch: u64) -> Option<Answer> {
        let before = self.sequence.load(Acquire);
        if !self.has(key) || self.epoch.load(Relaxed) != epoch {
            return None;
        }
        let rest = self.rest.load(Relaxed);
        fence(Acquire);
        if before & 1 != 0 || self.sequence.load(Relaxed) != before {
            return None;
        }
        // CAST: the lower half, of which the number has all bits but one.
        Some((rest & HAS_DEVICE != 0).then_some((rest & (HAS_DEVICE - 1)) as u32))
    }

    #[inline]
    /// Whether this was the address's slot in any epoch; for writers.
    fn has(&self, key: &AddrKey) -> bool {
        self.low.load(Relaxed) == key.low
            && self.high.load(Relaxed) == key.high
            && self.rest.load(Relaxed) >> 32 == u64::from(key.scope)
    }

    fn write(&self, key: &AddrKey, epoch: u64, answer: Answer) {
        let before = self.sequence.load(Relaxed);
        self.sequence.store(before.wrapping_add(1), Relaxed);
        fence(Release);
        self.high.store(key.high, Relaxed);
        self.low.store(key.low, Relaxed);
        let device = answer.map_or(0, |number| u64::from(number) | HAS_DEVICE);
        self.rest
            .store(u64::from(key.scope) << 32 | device, Relaxed);
        self.epoch.store(epoch, Relaxed);
        self.sequence.store(before.wrapping_add(2), Release);
    }
}

/// Place for the answers of addresses that are alike.
pub(crate) struct Set([Slot; WAYS]);

impl Set {
    pub(crate) const fn new() -> Self {
        Self([const { Slot::new() }; WAYS])
    }
}

/// The right to write, and which slot of a full set goes next.
pub(crate) struct Writer {
    victim: usize,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self { victim: 0 }
    }
}

/// A table of `N` sets, which is a power of two.
pub(crate) struct Table<S, const N: usize> {
    epoch: AtomicU64,
    sets: S,
}

impl<S: Deref<Target = [Set; N]>, const N: usize> Table<S, N> {
    pub(crate) fn new(sets: S) -> Self {
        Self {
            epoch: AtomicU64::new(1),
            sets,
        }
    }

    /// The epoch of a question: to be read before anything is looked at that the answer depends on.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // Pairs with `flush`: who sees its epoch sees the change that came before it.
        Epoch(self.epoch.load(Acquire))
    }

    /// Something has changed: nothing is known any more.
    pub(crate) fn flush(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    #[inline]
    fn set(&self, key: &AddrKey) -> &[Slot] {
        self.sets.get(key.set::<N>()).map_or(&[], |set| &set.0)
    }

    /// The answer, if it is known.
    #[inline(always)]
    pub(crate) fn get(&self, key: &AddrKey) -> Option<Answer> {
        let Epoch(epoch) = self.epoch();
        self.set(key).iter().find_map(|slot| slot.read(key, epoch))
    }

    /// Remembers the answer to a question of an epoch, unless that is over. One in the table has to go
    /// if there is no room.
    pub(crate) fn insert(
        &self,
        writer: &mut Writer,
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
