// SPDX-License-Identifier: GPL-2.0

//! Hash with a secret key, for tables whose keys programs choose.
//!
//! Without the secret, a program cannot find keys that share a bucket. Each word of a key is XORed
//! with a part of the secret before the multiplication. Both halves of the product count, so the
//! result of a difference between two keys depends on the secret. A lookup for each message can
//! afford two multiplications.

/// Random secret that the hash depends on.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 3]);

/// Multiplies two words and XORs the halves of the product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    // CAST: both halves are used.
    (product >> 64) as u64 ^ product as u64
}

impl Secret {
    /// Creates a secret from random words, which `random` returns.
    pub(crate) fn new(mut random: impl FnMut() -> u32) -> Self {
        let mut word = || u64::from(random()) << 32 | u64::from(random());
        let [a, b, c] = [word(), word(), word()];
        // An even factor loses a bit, and a factor of 0 loses all.
        Self([a, b, c | 1])
    }

    /// Returns the contribution of an address, given as its halves, to a hash.
    #[inline]
    pub(crate) fn address(&self, (high, low): (u64, u64)) -> u64 {
        let [a, b, _] = self.0;
        fold(low ^ a, high ^ b)
    }

    /// Returns the hash of an address, given as its contribution, and of `place`, a word that
    /// distinguishes the keys of one address. Upper bits are as good as lower ones.
    #[inline]
    pub(crate) fn hash(&self, address: u64, place: u64) -> u64 {
        let [_, _, c] = self.0;
        fold(address ^ place, c)
    }
}
