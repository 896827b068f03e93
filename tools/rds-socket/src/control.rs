// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Control messages as bytes: each has a length, a level, a kind, and data, aligned to the
//! machine's word.

use std::mem;

use crate::SOL_RDS;

const ALIGN: usize = mem::size_of::<usize>();
const HEADER: usize = mem::size_of::<libc::cmsghdr>();

/// Encodes a control message of RDS with these numbers as its data.
pub(crate) fn encode(kind: i32, data: &[u64]) -> Vec<u8> {
    let len = HEADER + mem::size_of_val(data);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(SOL_RDS.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data.iter().flat_map(|number| number.to_ne_bytes()));
    bytes
}

/// Iterates over the control messages that the kernel wrote, each with its level and kind. Ends at
/// the first truncated one.
pub(crate) fn decode(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (kind, _) = rest.split_first_chunk()?;
        let len = usize::from_ne_bytes(*len);
        let data = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_are_decoded() {
        let mut bytes = encode(5, &[1, 2]);
        bytes.extend(encode(7, &[]));
        let mut other = encode(8, &[3]);
        other[ALIGN..ALIGN + 4].copy_from_slice(&1i32.to_ne_bytes());
        bytes.extend(other);
        bytes.extend(encode(9, &[4]));
        let found: Vec<_> = decode(&bytes)
            .map(|(level, kind, data)| (level, kind, data.len()))
            .collect();
        let wanted = [
            (SOL_RDS, 5, 16),
            (SOL_RDS, 7, 0),
            (1, 8, 8),
            (SOL_RDS, 9, 8),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn messages_of_the_kernel_are_padded() {
        // A length that is no multiple of the word, as that of a status may be.
        let mut bytes = encode(4, &[1, 2]);
        bytes[..ALIGN].copy_from_slice(&(HEADER + 12).to_ne_bytes());
        bytes.extend(encode(2, &[3]));
        let found: Vec<_> = decode(&bytes)
            .map(|(_, kind, data)| (kind, data.len()))
            .collect();
        assert_eq!(found, [(4, 12), (2, 8)]);
    }

    #[test]
    fn cut_messages_end_it() {
        let bytes = encode(5, &[1, 2]);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]).count(), 0, "{len}");
        }
        for len in [0, HEADER - 1, usize::MAX] {
            let mut bad = bytes.clone();
            bad[..ALIGN].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(decode(&bad).count(), 0, "{len}");
        }
    }
}
