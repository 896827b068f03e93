// SPDX-License-Identifier: GPL-2.0

//! A hash with a secret key, for tables whose keys programs choose.
//!
//! Who does not know the secret cannot find keys that share a bucket. Each word of a key meets a
//! part of the secret before it is multiplied, and both halves of the product count: a difference
//! between two keys becomes one that depends on the secret. Two multiplications are what a lookup
//! for each message can pay for.

/// What the hash depends on besides the key.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 3]);

/// Folds the product of two words.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    // CAST: both halves.
    (product >> 64) as u64 ^ product as u64
}

impl Secret {
    /// A secret of random words, as `random` gives them.
    pub(crate) fn new(mut random: impl FnMut() -> u32) -> Self {
        let mut word = || u64::from(random()) << 32 | u64::from(random());
        let [a, b, c] = [word(), word(), word()];
        // An even factor loses a bit, and 0 all.
        Self([a, b, c | 1])
    }

    /// What an address, by its halves, adds to a hash.
    #[inline]
    pub(crate) fn address(&self, (high, low): (u64, u64)) -> u64 {
        let [a, b, _] = self.0;
        fold(low ^ a, high ^ b)
    }

    /// The hash of an address, by what it adds, and of a word that tells what is at one address
    /// apart. The upper bits are as good as the lower ones.
    #[inline]
    pub(crate) fn hash(&self, address: u64, place: u64) -> u64 {
        let [_, _, c] = self.0;
        fold(address ^ place, c)
    }
}
