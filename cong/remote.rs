// SPDX-License-Identifier: GPL-2.0

//! Congestion map that a peer has sent: one bit for each full port.

use crate::{
    kapi::sync::{
        new_spinlock_bh,
        ReadOnce,
        SpinLockBh,
        SpinLockBhGuard, //
    },
    proto::cong_bits, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

type Bits = [u64; cong_bits::WORDS];

/// A peer's congestion map. It is allocated when the peer first has a full port, and freed when the
/// connection is lost.
#[pin_data]
pub(crate) struct Remote {
    /// Set while any port is full. Senders check it first, without the lock.
    any: Atomic<bool>,
    #[pin]
    bits: SpinLockBh<Option<KBox<Bits>>>,
}

impl Remote {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            bits <- new_spinlock_bh!(None, "Remote::bits"),
        })
    }

    /// Returns `true` if a port is full.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    #[inline]
    pub(crate) fn is_congested(&self, port: u16) -> bool {
        self.any.read_once()
            && self
                .bits
                .lock()
                .as_ref()
                .is_some_and(|bits| cong_bits::test(bits, port))
    }

    /// Returns `true` if any port is full.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn has_full_port(&self) -> bool {
        self.any.read_once()
    }

    /// Forgets the map. No port counts as full then.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn clear(&self) {
        let mut bits = self.bits.lock();
        self.any.store(false, Relaxed);
        let map = bits.take();
        drop(bits);
        drop(map);
    }

    /// Locks the map. Takes `fresh` if there is none.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn lock_with(
        &self,
        fresh: &mut Option<KBox<Bits>>,
    ) -> SpinLockBhGuard<'_, Option<KBox<Bits>>> {
        let mut bits = self.bits.lock();
        // Another path of a C peer may have stored its map meanwhile.
        if bits.is_none() {
            *bits = fresh.take();
        }
        bits
    }

    /// Stores a piece of the peer's map that begins at byte `offset`. Returns a mask of the ports,
    /// modulo 64, that are no longer full.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory for the first map with a full port. No port counts as full
    ///   then.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn update(&self, offset: u32, piece: &[u8]) -> Result<u64> {
        let full = cong_bits::words(piece).any(|word| word != 0);
        // Declared first, so that a map which is not needed is dropped after the lock.
        let mut fresh;
        let mut bits = self.bits.lock();
        if bits.is_none() {
            if !full {
                return Ok(0);
            }
            drop(bits);
            fresh = Some(KBox::new([0; cong_bits::WORDS], GFP_ATOMIC)?);
            bits = self.lock_with(&mut fresh);
        }
        let Some(map) = &mut *bits else {
            return Ok(0);
        };
        let mut freed = 0;
        let words = map.iter_mut().skip(offset as usize / 8);
        for (old, new) in words.zip(cong_bits::words(piece)) {
            freed |= cong_bits::uncongested(*old, new);
            *old = new;
        }
        self.any.store(map.iter().any(|word| *word != 0), Relaxed);
        Ok(freed)
    }
}
