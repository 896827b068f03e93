// SPDX-License-Identifier: GPL-2.0

//! Congestion map: one bit for each port of an address, set while the port is congested.
//!
//! The bit of port `p` is bit `p % 8` of byte `p / 8`. In little-endian 64-bit words it is bit
//! `p % 64` of word `p / 64`. A map in memory consists of such words, in host byte order.

use super::wire::CONG_MAP_BYTES;

/// Number of 64-bit words in a map.
pub(crate) const WORDS: usize = 1024;

const _: () = assert!(WORDS * 8 == CONG_MAP_BYTES as usize);

/// Returns the index of the word that holds the bit of `port`. It is below [`WORDS`].
#[inline]
pub(crate) const fn word(port: u16) -> usize {
    (port >> 6) as usize
}

/// Returns the mask of `port` within its word.
#[inline]
pub(crate) const fn mask(port: u16) -> u64 {
    1 << (port & 63)
}

/// Returns `true` if `port` is congested in `map`, which holds the words in host byte order.
#[inline]
pub(crate) fn test(map: &[u64; WORDS], port: u16) -> bool {
    map.get(word(port))
        .is_some_and(|word| word & mask(port) != 0)
}

/// Sets the bit of `port`. Returns `true` if it was clear.
#[inline]
pub(crate) fn set(map: &mut [u64; WORDS], port: u16) -> bool {
    map.get_mut(word(port)).is_some_and(|word| {
        let old = *word;
        *word |= mask(port);
        old != *word
    })
}

/// Clears the bit of `port`. Returns `true` if it was set.
#[inline]
pub(crate) fn clear(map: &mut [u64; WORDS], port: u16) -> bool {
    map.get_mut(word(port)).is_some_and(|word| {
        let old = *word;
        *word &= !mask(port);
        old != *word
    })
}

/// Returns the ports of one word that are no longer congested. The results for all words of a map,
/// combined with OR, show a socket which ports modulo 64 to try again.
#[inline]
pub(crate) const fn uncongested(old: u64, new: u64) -> u64 {
    old & !new
}

/// Returns the words of a received piece of a map. An incomplete last word is left out; no valid
/// piece has one.
#[inline]
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}
