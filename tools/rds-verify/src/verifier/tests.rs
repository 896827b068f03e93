// SPDX-License-Identifier: GPL-2.0
//! Each class of defect, injected into a good stream.

use super::*;

const COUNT: u64 = 40;

fn key() -> Key {
    Key::new(
        9,
        ([10, 0, 0, 1], 1000).into(),
        ([10, 0, 0, 2], 2000).into(),
    )
}

fn stream(sizes: Sizes) -> Vec<Vec<u8>> {
    let message = |seq| {
        let mut message = vec![0; sizes.size(key(), seq)];
        key().fill(seq, &mut message);
        message
    };
    (0..COUNT).map(message).collect()
}

/// Verifies `messages`; returns the defect, or the loss that remains when nothing more comes.
fn verify(sizes: Sizes, messages: &[Vec<u8>]) -> Option<Defect> {
    let mut verifier = Verifier::new(key(), sizes, COUNT);
    for message in messages {
        if let Err(defect) = verifier.accept(message, false) {
            return Some(defect);
        }
    }
    assert_eq!(
        verifier.is_complete(),
        verifier.totals().messages == COUNT && !verifier.has_gap()
    );
    verifier.loss()
}

const SIZES: Sizes = Sizes::Range(16, 6000);

#[test]
fn a_good_stream_is_complete() {
    for sizes in [
        SIZES,
        Sizes::Mixed,
        Sizes::Boundary,
        Sizes::Range(0, 0),
        Sizes::Range(0, 9),
    ] {
        let messages = stream(sizes);
        let mut verifier = Verifier::new(key(), sizes, COUNT);
        let mut hash = Hash::default();
        for message in &messages {
            assert!(!verifier.is_complete());
            assert_eq!(verifier.accept(message, false), Ok(()));
            hash.update(message);
        }
        assert!(verifier.is_complete());
        let bytes = messages.iter().map(|m| m.len() as u64).sum();
        assert_eq!(
            verifier.totals(),
            Totals {
                messages: COUNT,
                bytes,
                hash: hash.value()
            }
        );
    }
}

#[test]
fn loss() {
    let mut messages = stream(SIZES);
    messages.remove(7);
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Lost {
            first: 7,
            count: 1,
            got: 8
        })
    );
    messages.drain(20..23);
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Lost {
            first: 7,
            count: 4,
            got: 8
        })
    );
}

#[test]
fn loss_of_the_last_leaves_the_stream_incomplete() {
    let mut verifier = Verifier::new(key(), SIZES, COUNT);
    for message in &stream(SIZES)[..COUNT as usize - 1] {
        assert_eq!(verifier.accept(message, false), Ok(()));
    }
    assert!(!verifier.is_complete());
}

#[test]
fn loss_of_an_empty_message() {
    let mut messages = stream(Sizes::Boundary);
    assert!(messages.remove(20).is_empty());
    let lost = Defect::Lost {
        first: 20,
        count: 1,
        got: 21,
    };
    assert_eq!(verify(Sizes::Boundary, &messages), Some(lost));
}

#[test]
fn duplication() {
    let mut messages = stream(SIZES);
    messages.insert(8, messages[5].clone());
    let duplicate = Defect::Duplicate {
        seq: 5,
        expected: 8,
    };
    assert_eq!(verify(SIZES, &messages), Some(duplicate));
}

#[test]
fn duplication_of_the_last() {
    let mut messages = stream(SIZES);
    messages.push(messages[COUNT as usize - 1].clone());
    let duplicate = Defect::Duplicate {
        seq: COUNT - 1,
        expected: COUNT,
    };
    assert_eq!(verify(SIZES, &messages), Some(duplicate));
}

#[test]
fn reordering() {
    let mut messages = stream(SIZES);
    messages.swap(10, 11);
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Reordered {
            late: 10,
            after: 11
        })
    );

    let mut messages = stream(SIZES);
    let late = messages.remove(10);
    messages.insert(30, late);
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Reordered {
            late: 10,
            after: 30
        })
    );
}

#[test]
fn truncation() {
    let mut messages = stream(SIZES);
    let size = messages[3].len();
    messages[3].truncate(size - 1);
    let truncated = Defect::Truncated {
        seq: 3,
        size,
        got: size - 1,
    };
    assert_eq!(verify(SIZES, &messages), Some(truncated));
    messages[3].clear();
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Truncated {
            seq: 3,
            size,
            got: 0
        })
    );
}

#[test]
fn more_than_the_buffer_holds() {
    let mut verifier = Verifier::new(key(), SIZES, COUNT);
    let message = &stream(SIZES)[0];
    assert!(verifier.accept(message, true).is_err());
}

#[test]
fn overlong() {
    let mut messages = stream(SIZES);
    let size = messages[3].len();
    messages[3].push(0);
    let overlong = Defect::Overlong {
        seq: 3,
        size,
        got: size + 1,
    };
    assert_eq!(verify(SIZES, &messages), Some(overlong));
}

#[test]
fn corruption() {
    let mut messages = stream(SIZES);
    let size = messages[3].len();
    messages[3][15] ^= 1;
    let corrupt = Defect::Corrupt {
        seq: 3,
        size,
        offset: 15,
        wrong: 1,
    };
    assert_eq!(verify(SIZES, &messages), Some(corrupt));
}

#[test]
fn a_hole_is_corruption() {
    const SIZES: Sizes = Sizes::Range(3 * 4096, 3 * 4096);
    let mut messages = stream(SIZES);
    messages[3][4096..8192].fill(0);
    let Some(Defect::Corrupt {
        seq: 3,
        offset,
        wrong,
        ..
    }) = verify(SIZES, &messages)
    else {
        panic!("{:?}", verify(SIZES, &messages));
    };
    assert!((4096..4100).contains(&offset), "{offset}");
    assert!((4000..=4096).contains(&wrong), "{wrong}");
}

#[test]
fn foreign_data() {
    let mut messages = stream(SIZES);
    let other = Key::new(
        9,
        ([10, 0, 0, 1], 1001).into(),
        ([10, 0, 0, 2], 2000).into(),
    );
    let size = messages[3].len();
    other.fill(3, &mut messages[3]);
    let foreign = Defect::Foreign {
        expected: 3,
        size,
        got: size,
    };
    assert_eq!(verify(SIZES, &messages), Some(foreign));
}

#[test]
fn data_after_the_end() {
    let mut messages = stream(SIZES);
    messages.push(vec![1; 100]);
    assert_eq!(verify(SIZES, &messages), Some(Defect::Surplus { got: 100 }));
}

#[test]
fn the_first_of_two_defects_is_named() {
    let mut messages = stream(SIZES);
    messages[20][0] ^= 1;
    messages.remove(7);
    assert_eq!(
        verify(SIZES, &messages),
        Some(Defect::Lost {
            first: 7,
            count: 1,
            got: 8
        })
    );
}
