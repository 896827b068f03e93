// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! A table as the kernel writes it.
//!
//! The kernel takes a snapshot in one call, or returns the necessary size. The table may have grown
//! by the next call. So each try has some spare room, and the number of tries is limited.

use std::io;

/// Spare room beyond the size that the kernel returned: a quarter, and at least this.
const SPARE: usize = 4096;

/// Upper limit for the size of a table. A larger size of the kernel is an error.
const LARGEST: usize = 256 << 20;

/// Number of tries, after which a fast growing table is given up.
const TRIES: usize = 32;

/// A snapshot of a table: records of equal size, one after the other, without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The records. A kernel that is newer than this program may have longer ones.
    pub data: Vec<u8>,
    /// Bytes of each record. 0 only if there is none.
    pub each: usize,
}

/// The answer of the kernel to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel has written `len` bytes of records of `each` bytes.
    Written { len: usize, each: usize },
    /// The table has `needed` bytes.
    TooShort { needed: usize },
}

/// Calls `ask` with buffers of growing size until it has written the table.
///
/// # Errors
///
/// Those of `ask`. `EAGAIN`: the table kept growing. `EFBIG`: it is too large. `EBADMSG`: the
/// answer makes no sense.
pub(crate) fn read_table(
    mut ask: impl FnMut(&mut [u8]) -> io::Result<Answer>,
) -> io::Result<Table> {
    let errno = io::Error::from_raw_os_error;
    let mut data = vec![0; SPARE];
    for _ in 0..TRIES {
        match ask(&mut data)? {
            Answer::Written { len, each } => {
                if len > data.len() || (len > 0 && each == 0) {
                    return Err(errno(libc::EBADMSG));
                }
                data.truncate(len);
                return Ok(Table { data, each });
            }
            Answer::TooShort { needed } => {
                if needed > LARGEST {
                    return Err(errno(libc::EFBIG));
                }
                let size = needed.saturating_add((needed / 4).max(SPARE));
                // The content of the last try is useless.
                data = vec![0; size.max(data.len())];
            }
        }
    }
    Err(errno(libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a table of `len` bytes before the first call, which grows by `growth` with each.
    fn read_growing(mut len: usize, growth: usize) -> (io::Result<Table>, usize) {
        let mut calls = 0;
        let table = read_table(|room| {
            calls += 1;
            let needed = len;
            len += growth;
            if needed > room.len() {
                return Ok(Answer::TooShort { needed });
            }
            room[..needed].fill(7);
            Ok(Answer::Written {
                len: needed,
                each: 10,
            })
        });
        (table, calls)
    }

    #[test]
    fn an_empty_table_is_empty() {
        assert_eq!(
            read_growing(0, 0).0.unwrap(),
            Table {
                data: vec![],
                each: 10
            }
        );
    }

    #[test]
    fn a_large_table_takes_two_calls() {
        let (table, calls) = read_growing(1_000_000, 0);
        assert_eq!(table.unwrap().data, vec![7; 1_000_000]);
        assert_eq!(calls, 2);
    }

    #[test]
    fn a_table_that_grows_is_caught_up() {
        let (table, calls) = read_growing(5000, 3000);
        assert_eq!(table.unwrap().data.len(), 8000);
        assert_eq!(calls, 2);
        let (table, calls) = read_growing(5000, 6000);
        assert_eq!(table.unwrap().data.len(), 5000 + 6000 * (calls - 1));
        assert!(calls < 10, "{calls}");
    }

    #[test]
    fn one_that_grows_without_end_is_given_up() {
        let mut calls = 0;
        let error = read_table(|room| {
            calls += 1;
            Ok(Answer::TooShort {
                needed: room.len() + 1,
            })
        })
        .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(calls, TRIES);
    }

    #[test]
    fn absurd_answers_are_errors() {
        let fails = |answer| read_table(|_| Ok(answer)).unwrap_err().raw_os_error();
        let needed = LARGEST + 1;
        assert_eq!(fails(Answer::TooShort { needed }), Some(libc::EFBIG));
        let (len, each) = (usize::MAX, 10);
        assert_eq!(fails(Answer::Written { len, each }), Some(libc::EBADMSG));
        let (len, each) = (10, 0);
        assert_eq!(fails(Answer::Written { len, each }), Some(libc::EBADMSG));
    }

    #[test]
    fn errors_of_the_kernel_end_it() {
        let refuse = |_: &mut [u8]| Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
        let error = read_table(refuse).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
