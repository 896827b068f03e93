// SPDX-License-Identifier: GPL-2.0
//! The content of messages: a function of the stream and the message's number.
//!
//! It is verified and hashed eight bytes at a time, because the CPU may be an emulated one. The
//! generator is wyrand (an addition, a widening multiplication, an exclusive or for each word). The
//! hash is FxHash over the words. It shows if both ends saw the same bytes in the same order, and
//! it does not resist attacks.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

const WORD: usize = 8;
const WYRAND_ADD: u64 = 0xa076_1d64_78bd_642f;
const WYRAND_XOR: u64 = 0xe703_7ed1_a0b4_28db;
const FX: u64 = 0x517c_c1b7_2722_0a95;

/// Folds `b` into `a`; every bit of the result depends on all bits of both.
pub fn mix(a: u64, b: u64) -> u64 {
    fold(a ^ WYRAND_ADD, b ^ fold(a ^ b, WYRAND_XOR))
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// An endless sequence of words for one message.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(WYRAND_ADD);
        fold(self.0, self.0 ^ WYRAND_XOR)
    }
}

/// The key from which the content of a stream of messages derives.
///
/// It contains the addresses of both ends. So verification fails for a message that the kernel
/// delivers to the wrong socket, or with the wrong source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Returns the key of the stream between these ends. A mapped IPv4 address counts as that IPv4
    /// address.
    pub fn new(seed: u64, from: SocketAddr, to: SocketAddr) -> Self {
        let end = |key, addr: SocketAddr| {
            let ip = match addr.ip().to_canonical() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            let key = mix(mix(key, ip as u64), (ip >> 64) as u64);
            mix(key, u64::from(addr.port()))
        };
        Key(end(end(seed, from), to))
    }

    /// Returns a number for message `seq` that is independent of its content.
    pub fn draw(self, seq: u64) -> u64 {
        const NOT_CONTENT: u64 = 1 << 63;
        mix(self.0, seq ^ NOT_CONTENT)
    }

    fn words(self, seq: u64) -> Words {
        Words(mix(self.0, seq))
    }

    /// Writes the content of message `seq`.
    pub fn fill(self, seq: u64, message: &mut [u8]) {
        let mut words = self.words(seq);
        let mut chunks = message.chunks_exact_mut(WORD);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&words.next().to_le_bytes());
        }
        let tail = chunks.into_remainder();
        let last = words.next().to_le_bytes();
        tail.copy_from_slice(&last[..tail.len()]);
    }

    /// Returns the number of bytes at the start of `message` that match message `seq`.
    pub fn matching_prefix(self, seq: u64, message: &[u8]) -> usize {
        let mut words = self.words(seq);
        for (i, chunk) in message.chunks(WORD).enumerate() {
            let expected = words.next().to_le_bytes();
            if let Some(offset) = chunk
                .iter()
                .zip(expected)
                .position(|(&got, want)| got != want)
            {
                return i * WORD + offset;
            }
        }
        message.len()
    }

    /// Returns the number of bytes of `message` that match message `seq`.
    pub fn matching_bytes(self, seq: u64, message: &[u8]) -> usize {
        let mut words = self.words(seq);
        let chunks = message.chunks(WORD);
        let matching = chunks.map(|chunk| {
            let expected = words.next().to_le_bytes();
            chunk
                .iter()
                .zip(expected)
                .filter(|&(&got, want)| got == want)
                .count()
        });
        matching.sum()
    }

    /// Returns `true` if `message` is message `seq`, and then adds it to `hash`.
    pub fn verify(self, seq: u64, message: &[u8], hash: &mut Hash) -> bool {
        let mut words = self.words(seq);
        let mut state = hash.0;
        let mut difference = 0;
        let mut chunks = message.chunks_exact(WORD);
        for chunk in &mut chunks {
            let word = word(chunk);
            difference |= word ^ words.next();
            state = step(state, word);
        }
        let tail = chunks.remainder();
        let mut last = [0; WORD];
        last[..tail.len()].copy_from_slice(&words.next().to_le_bytes()[..tail.len()]);
        difference |= word(tail) ^ word(&last);
        if difference != 0 {
            return false;
        }
        state = step(state, word(tail));
        hash.0 = end(state, message.len());
        true
    }
}

/// Converts up to eight bytes to a little-endian number.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn step(state: u64, word: u64) -> u64 {
    (state.rotate_left(5) ^ word).wrapping_mul(FX)
}

/// Ends a message. It mixes in the complement of the length, as zeros would not change a zero
/// state.
fn end(state: u64, len: usize) -> u64 {
    step(state, !(len as u64))
}

/// The running hash of all messages of a stream, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// Returns the hash as a number.
    pub fn value(self) -> u64 {
        self.0
    }

    /// Adds one message.
    pub fn update(&mut self, message: &[u8]) {
        let mut chunks = message.chunks_exact(WORD);
        let mut state = self.0;
        for chunk in &mut chunks {
            state = step(state, word(chunk));
        }
        state = step(state, word(chunks.remainder()));
        self.0 = end(state, message.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn key() -> Key {
        Key::new(1, addr("10.0.0.1:1000"), addr("10.0.0.2:2000"))
    }

    fn message(seq: u64, len: usize) -> Vec<u8> {
        let mut message = vec![0; len];
        key().fill(seq, &mut message);
        message
    }

    #[test]
    fn every_parameter_changes_the_content() {
        let (a, b) = (addr("10.0.0.1:1000"), addr("10.0.0.2:2000"));
        let keys = [
            Key::new(1, a, b),
            Key::new(2, a, b),
            Key::new(1, b, a),
            Key::new(1, addr("10.0.0.1:1001"), b),
            Key::new(1, a, addr("10.0.0.2:2001")),
            Key::new(1, a, addr("10.0.0.3:2000")),
            Key::new(1, addr("[fd00::1]:1000"), addr("[fd00::2]:2000")),
            Key::new(1, addr("[fd01::1]:1000"), addr("[fd00::2]:2000")),
        ];
        let mut contents: Vec<[u8; 16]> = keys
            .iter()
            .flat_map(|key| {
                [0, 1].map(|seq| {
                    let mut content = [0; 16];
                    key.fill(seq, &mut content);
                    content
                })
            })
            .collect();
        contents.sort_unstable();
        contents.dedup();
        assert_eq!(contents.len(), 2 * keys.len());
    }

    #[test]
    fn mapped_addresses_are_ipv4_addresses() {
        let b = addr("10.0.0.2:2000");
        let mapped = Key::new(1, addr("[::ffff:10.0.0.1]:1000"), b);
        assert_eq!(mapped, key());
    }

    #[test]
    fn a_shorter_message_is_a_prefix_of_a_longer() {
        let long = message(7, 100);
        for len in 0..100 {
            assert_eq!(message(7, len), long[..len]);
            assert_eq!(key().matching_prefix(7, &long[..len]), len);
        }
    }

    #[test]
    fn every_single_bit_error_is_seen() {
        for len in 1..40 {
            let good = message(3, len);
            for bit in 0..len * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let mut hash = Hash::default();
                assert!(!key().verify(3, &bad, &mut hash), "length {len}, bit {bit}");
                assert_eq!(hash, Hash::default());
                assert_eq!(key().matching_prefix(3, &bad), bit / 8);
                assert_eq!(key().matching_bytes(3, &bad), len - 1);
            }
        }
    }

    #[test]
    fn sender_and_receiver_hash_alike() {
        let (mut sent, mut received) = (Hash::default(), Hash::default());
        for (seq, len) in [0, 1, 7, 8, 9, 4096, 4097].into_iter().enumerate() {
            let message = message(seq as u64, len);
            sent.update(&message);
            assert!(key().verify(seq as u64, &message, &mut received));
            assert_eq!(sent, received);
        }
    }

    #[test]
    fn hash_depends_on_order_and_on_boundaries() {
        let hash = |messages: &[&[u8]]| {
            let mut hash = Hash::default();
            messages.iter().for_each(|m| hash.update(m));
            hash
        };
        assert_ne!(hash(&[b"a", b"b"]), hash(&[b"b", b"a"]));
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_ne!(hash(&[b""]), hash(&[b"", b""]));
        assert_ne!(hash(&[b"a"]), hash(&[b"a\0"]));
    }
}
