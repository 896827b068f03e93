// SPDX-License-Identifier: GPL-2.0

//! The map that a peer sent: which of its ports are full.

use crate::kapi::sync::{new_spinlock_bh, Peek, SpinLockBh};
use crate::proto::cong_bits;
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

type Bits = [u64; cong_bits::WORDS];

/// A peer's map. It takes no memory until the peer has a full port for the first time, nor after the
/// connection is lost.
#[pin_data]
pub(crate) struct Remote {
    /// Whether any port is full: what senders look at first.
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

    /// Whether a port takes nothing for now. Any context.
    #[inline]
    pub(crate) fn is_congested(&self, port: u16) -> bool {
        self.any.peek()
            && self
                .bits
                .lock()
                .as_ref()
                .is_some_and(|bits| cong_bits::test(bits, port))
    }

    /// Forgets the map: no port counts as full. Any context.
    pub(crate) fn clear(&self) {
        let mut bits = self.bits.lock();
        self.any.store(false, Relaxed);
        let map = bits.take();
        drop(bits);
        drop(map);
    }

    /// Takes one piece of the peer's map, from byte `offset` on. Any context.
    ///
    /// Returns which ports that were full are not any more, modulo 64. Fails with ENOMEM if the first map
    /// with a full port finds no memory: then nothing is held back.
    pub(crate) fn update(&self, offset: u32, piece: &[u8]) -> Result<u64> {
        let full = cong_bits::words(piece).any(|word| word != 0);
        let mut bits = self.bits.lock();
        if bits.is_none() {
            if !full {
                return Ok(0);
            }
            drop(bits);
            let fresh = KBox::new([0; cong_bits::WORDS], GFP_ATOMIC)?;
            bits = self.bits.lock();
            // Only the receive side of one connection gets here, so no one else has put one.
            *bits = Some(fresh);
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
