// SPDX-License-Identifier: GPL-2.0
//! The sizes of the messages of a stream, in bytes.

use std::fmt;
use std::str::FromStr;

use rds_socket::MAX_MESSAGE;

use rds_content::{mix, Key};

/// Payload of one fragment on the wire.
const FRAGMENT: usize = 4096;

/// The rule by which the size of a message derives from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// Mostly small, some around the boundaries of fragments, a few up to the largest.
    Mixed,
    /// All sizes within two bytes of 0 to 3 fragments, and the two largest, over and over.
    Boundary,
    /// Random, from the first to the second, both included.
    Range(usize, usize),
}

impl Sizes {
    /// Returns the size of message `seq` of a stream.
    pub(crate) fn size(self, key: Key, seq: u64) -> usize {
        match self {
            Sizes::Mixed => mixed(key.draw(seq)),
            Sizes::Boundary => boundary(seq),
            Sizes::Range(min, max) if min == max => min,
            Sizes::Range(min, max) => min + below(key.draw(seq), max - min + 1),
        }
    }

    /// Returns the largest possible size.
    pub(crate) fn max(self) -> usize {
        match self {
            Sizes::Mixed | Sizes::Boundary => MAX_MESSAGE,
            Sizes::Range(_, max) => max,
        }
    }

    /// Returns a number that is equal for both ends if they agree.
    pub(crate) fn digest(self) -> u64 {
        match self {
            Sizes::Mixed => 1,
            Sizes::Boundary => 2,
            Sizes::Range(min, max) => mix(min as u64, max as u64),
        }
    }
}

/// Chooses uniformly from `0..limit` by the upper half of `random`.
fn below(random: u64, limit: usize) -> usize {
    (((random >> 32) * limit as u64) >> 32) as usize
}

fn mixed(random: u64) -> usize {
    match random & 0xff {
        0..200 => below(random, 513),
        200..252 => {
            let fragments = 1 + below(random, MIXED_FRAGMENTS);
            fragments * FRAGMENT - 1 + (random >> 8) as usize % 3
        }
        252..255 => below(random, MAX_MESSAGE + 1),
        _ => MAX_MESSAGE,
    }
}

/// Largest number of fragments around which `mixed` chooses sizes: 64 KiB.
const MIXED_FRAGMENTS: usize = 16;

fn boundary(seq: u64) -> usize {
    const FRAGMENTS: usize = 3;
    const AROUND: usize = 5;
    const START: usize = 3;
    const CYCLE: usize = START + FRAGMENTS * AROUND + 2;
    match (seq % CYCLE as u64) as usize {
        step if step < START => step,
        step if step < CYCLE - 2 => {
            let step = step - START;
            (1 + step / AROUND) * FRAGMENT - 2 + step % AROUND
        }
        step => MAX_MESSAGE + 1 + step - CYCLE,
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Mixed => f.write_str("mixed"),
            Sizes::Boundary => f.write_str("boundary"),
            Sizes::Range(min, max) if min == max => write!(f, "{min}"),
            Sizes::Range(min, max) => write!(f, "{min}..{max}"),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| match text.parse() {
            Ok(size) if size <= MAX_MESSAGE => Ok(size),
            Ok(size) => Err(format!("{size} is more than an RDS message, {MAX_MESSAGE}")),
            Err(_) => Err("use `mixed`, `boundary`, a number, or a range like 1..4096".into()),
        };
        match text {
            "mixed" => Ok(Sizes::Mixed),
            "boundary" => Ok(Sizes::Boundary),
            _ => {
                let (min, max) = text.split_once("..").unwrap_or((text, text));
                let (min, max) = (size(min)?, size(max)?);
                if min > max {
                    return Err(format!("{min} is more than {max}"));
                }
                Ok(Sizes::Range(min, max))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(sizes: Sizes, count: u64) -> Vec<usize> {
        let key = Key::new(1, ([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        (0..count).map(|seq| sizes.size(key, seq)).collect()
    }

    #[test]
    fn boundary_is_every_edge_once_a_cycle() {
        let cycle = sequence(Sizes::Boundary, 20);
        let expected = [
            0, 1, 2, 4094, 4095, 4096, 4097, 4098, 8190, 8191, 8192, 8193, 8194, 12286, 12287,
            12288, 12289, 12290, 1048575, 1048576,
        ];
        assert_eq!(cycle, expected);
        assert_eq!(sequence(Sizes::Boundary, 40)[20..], expected);
    }

    #[test]
    fn mixed_has_all_kinds_in_proportion() {
        let sizes = sequence(Sizes::Mixed, 20_000);
        let share = |kind: fn(usize) -> bool| {
            sizes.iter().filter(|&&size| kind(size)).count() as f64 / sizes.len() as f64
        };
        let small = share(|size| size <= 512);
        assert!((0.75..0.82).contains(&small), "{small}");
        let large = share(|size| size > 17 * FRAGMENT);
        assert!((0.005..0.03).contains(&large), "{large}");
        for wanted in [
            0,
            1,
            512,
            4095,
            4096,
            4097,
            8191,
            8193,
            65535,
            65536,
            65537,
            MAX_MESSAGE,
        ] {
            assert!(sizes.contains(&wanted), "{wanted}");
        }
        assert!(sizes.iter().all(|&size| size <= Sizes::Mixed.max()));
    }

    #[test]
    fn ranges_include_both_ends() {
        let mut sizes = sequence(Sizes::Range(5, 8), 1000);
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, [5, 6, 7, 8]);
        assert_eq!(sequence(Sizes::Range(9, 9), 2), [9, 9]);
        assert!(sequence(Sizes::Range(0, MAX_MESSAGE), 1000)
            .iter()
            .all(|&s| s <= MAX_MESSAGE));
    }

    #[test]
    fn specifications() {
        assert_eq!("mixed".parse(), Ok(Sizes::Mixed));
        assert_eq!("boundary".parse(), Ok(Sizes::Boundary));
        assert_eq!("0".parse(), Ok(Sizes::Range(0, 0)));
        assert_eq!("1..1048576".parse(), Ok(Sizes::Range(1, MAX_MESSAGE)));
        for bad in ["", "x", "1..", "..2", "2..1", "1048577", "1...2", "-1"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn specifications_print_as_they_parse_and_differ() {
        let all = ["mixed", "boundary", "7", "1..2", "2..2", "1..3"];
        let mut digests = Vec::new();
        for text in all {
            let sizes: Sizes = text.parse().unwrap();
            assert_eq!(sizes.to_string().parse(), Ok(sizes));
            digests.push(sizes.digest());
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all.len());
    }
}
