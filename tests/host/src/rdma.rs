// SPDX-License-Identifier: GPL-2.0
//! Tests of `proto/rdma.rs` and `uapi/rdma.rs`: keys of memory, and parsing of RDMA arguments, with
//! the numbers that programs might choose.

use crate::proto::rdma::*;
use crate::uapi::rdma::*;
use proptest::prelude::*;

fn bytes<const N: usize>(words: &[u64]) -> [u8; N] {
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    all.try_into().unwrap()
}

#[test]
fn cookies() {
    let cookie = Cookie {
        rkey: 0x1234_5678,
        offset: 0x9ab,
    };
    assert_eq!(cookie.to_bits(), 0x0000_09ab_1234_5678);
    assert_eq!(Cookie::from_bits(cookie.to_bits()), cookie);
}

#[test]
fn regions() {
    assert_eq!(
        (GetMr::LEN, GetMr::LEN_FOR_DEST, FreeMr::LEN),
        (32, 160, 16)
    );
    let args = GetMr::parse(&bytes(&[0x1000, 0x2000, 0x3000, 9])).unwrap();
    assert_eq!(
        args.area,
        Area {
            address: 0x1000,
            bytes: 0x2000
        }
    );
    assert_eq!(args.cookie_address, 0x3000);
    assert!(args.flags.contains(RdmaFlags::READWRITE) && args.flags.contains(RdmaFlags::USE_ONCE));
    assert!(!args.flags.contains(RdmaFlags::INVALIDATE));

    let all = FreeMr::parse(&bytes(&[0, 4])).unwrap();
    assert_eq!(all.cookie, None);
    assert!(all.flags.contains(RdmaFlags::INVALIDATE));
    let one = FreeMr::parse(&bytes(&[0x7_0000_0003, 0])).unwrap();
    assert_eq!(one.cookie, Some(Cookie { rkey: 3, offset: 7 }));
}

#[test]
fn areas_that_wrap_around() {
    let wraps = |address, bytes| Area { address, bytes }.wraps(4096);
    assert!(!wraps(0, 0));
    assert!(!wraps(4096, 1 << 32));
    assert!(!wraps(u64::MAX - 8191, 4096));
    // The area does not wrap around, but the end of its last page does.
    assert!(wraps(u64::MAX - 8191, 4097));
    assert!(wraps(u64::MAX, 1));
    assert!(wraps(4096, u64::MAX));
}

#[test]
fn pages() {
    let pages = |address, bytes| Area { address, bytes }.pages(4096);
    assert_eq!(pages(0, 0), None);
    assert_eq!(pages(0, 1), Some(1));
    assert_eq!(pages(4095, 2), Some(2));
    assert_eq!(pages(4096, 4096), Some(1));
    assert_eq!(pages(1, 1 << 20), Some(257));
    assert_eq!(pages(u64::MAX, 1), Some(1));
    assert_eq!(pages(u64::MAX, 2), None);
    assert_eq!(pages(4096, u64::MAX), None);
}

#[test]
fn areas() {
    assert_eq!(
        Area::parse(&bytes(&[5, 6])),
        Some(Area {
            address: 5,
            bytes: 6
        })
    );
    assert_eq!(Area::LEN, 16);
}

#[test]
fn split_areas() {
    let split = |address, bytes| Area { address, bytes }.split(1 << 20);
    let area = |address, bytes| Area { address, bytes };
    assert_eq!(split(0, 1 << 20), (area(0, 1 << 20), None));
    assert_eq!(split(5, 100), (area(5, 100), None));
    assert_eq!(
        split(1, 1 << 20),
        (area(1, (1 << 20) - 1), Some(area(1 << 20, 1)))
    );
    assert_eq!(
        split((3 << 20) - 1, 2),
        (area((3 << 20) - 1, 1), Some(area(3 << 20, 1)))
    );
    assert_eq!(split(u64::MAX, 1), (area(u64::MAX, 1), None));
}

fn transfer(remote: Area, count: u64) -> Result<Transfer, ArgError> {
    let cookie = Cookie {
        rkey: 5,
        offset: 100,
    }
    .to_bits();
    Transfer::parse(&bytes(&[
        cookie,
        remote.address,
        remote.bytes,
        0x5000,
        count,
        0x21,
        77,
    ]))
}

const REMOTE: Area = Area {
    address: 8,
    bytes: 4096,
};

/// Returns the bounce buffers of an area, in bytes: half pages for its part of each page.
fn bounced(area: Area) -> u64 {
    let mut rest = Some(area);
    let mut sum = 0;
    while let Some(area) = rest {
        let (first, after) = area.split(4096);
        sum += first.bytes.next_multiple_of(2048);
        rest = after;
    }
    sum
}

proptest! {
    #[test]
    fn bounce_buffers_are_charged_in_full(
        areas in prop::collection::vec((0u64..1 << 20, 1u64..9000), 1..40)
    ) {
        let area = |(address, bytes)| Area { address, bytes };
        let areas: Vec<_> = areas.into_iter().map(area).collect();
        let all = Area { address: 0, bytes: areas.iter().map(|area| area.bytes).sum() };
        let charged = transfer(all, areas.len() as u64).unwrap().bounce_bytes(4096);
        prop_assert!(areas.into_iter().map(bounced).sum::<u64>() <= charged);
    }
}

#[test]
fn transfers() {
    let good = transfer(REMOTE, 2).unwrap();
    assert_eq!(good.remote_address(), Ok(108));
    assert_eq!(
        (good.local_address, good.local_count, good.token),
        (0x5000, 2, 77)
    );
    assert!(good.flags.contains(RdmaFlags::READWRITE) && good.flags.contains(RdmaFlags::NOTIFY_ME));
    assert!(!good.flags.contains(RdmaFlags::FENCE) && !good.flags.contains(RdmaFlags::SILENT));
    assert_eq!(transfer(REMOTE, 0), Err(ArgError::Invalid));
    assert_eq!(
        transfer(REMOTE, MAX_LOCAL).map(|it| it.local_count),
        Ok(MAX_LOCAL)
    );
    assert_eq!(transfer(REMOTE, MAX_LOCAL + 1), Err(ArgError::TooLarge));
    assert_eq!(transfer(REMOTE, u64::MAX), Err(ArgError::TooLarge));
    let too_large = Area {
        bytes: MAX_BYTES + 1,
        ..REMOTE
    };
    assert_eq!(transfer(too_large, 1), Err(ArgError::TooLarge));
    // This check comes first, as in C RDS.
    assert_eq!(transfer(too_large, 0), Err(ArgError::TooLarge));
    let nowhere = Area {
        address: u64::MAX - 50,
        ..REMOTE
    };
    assert_eq!(
        transfer(nowhere, 1).unwrap().remote_address(),
        Err(ArgError::Invalid)
    );
}

#[test]
fn local_memory() {
    let good = transfer(REMOTE, 2).unwrap();
    let sum = |areas: &[(u64, u64)]| {
        let areas = areas
            .iter()
            .map(|&(address, bytes)| Area { address, bytes });
        good.local_bytes(areas, 4096)
    };
    assert_eq!(sum(&[(0, 4000), (9000, 96)]), Ok(4096));
    assert_eq!(sum(&[(0, 4000), (9000, 97)]), Err(ArgError::Invalid));
    assert_eq!(sum(&[(0, 4000), (9000, 0)]), Err(ArgError::Invalid));
    assert_eq!(sum(&[(0, 1 << 63), (0, 1 << 63)]), Err(ArgError::Invalid));
    assert_eq!(sum(&[(u64::MAX, 2)]), Err(ArgError::Invalid));
}

#[test]
fn notifications() {
    let bytes = notification(0x0102_0304_0506_0708, Status::Dropped);
    assert_eq!(bytes[..8], 0x0102_0304_0506_0708u64.to_ne_bytes());
    assert_eq!(bytes[8..12], 3i32.to_ne_bytes());
    assert_eq!(bytes[12..], [0; 4]);
}

#[test]
fn atomics() {
    let parse = |kind, words: [u64; 9]| AtomicArgs::parse(kind, &bytes::<72>(&words)).unwrap();
    let cookie = Cookie {
        rkey: 5,
        offset: 104,
    }
    .to_bits();
    let words = [cookie, 0x5000, 16, 1, 2, 3, 4, 0x20, 77];
    let add = parse(AtomicKind::FetchAdd, words);
    assert_eq!(
        add.change,
        Change::FetchAdd {
            add: 1,
            boundary: 0
        }
    );
    assert!(!add.change.is_masked());
    assert_eq!(
        (add.local_address, add.remote_address(), add.token),
        (0x5000, Ok(120), 77)
    );
    assert!(add.flags.contains(RdmaFlags::NOTIFY_ME));
    let swap = parse(AtomicKind::CompareSwap, words);
    assert_eq!(
        swap.change,
        Change::CompareSwap {
            compare: 1,
            swap: 2,
            compare_mask: u64::MAX,
            swap_mask: u64::MAX,
        }
    );
    assert!(!swap.change.is_masked());
    let masked = parse(AtomicKind::MaskedFetchAdd, words);
    assert_eq!(
        masked.change,
        Change::FetchAdd {
            add: 1,
            boundary: 2
        }
    );
    assert!(masked.change.is_masked());
    let masked = parse(AtomicKind::MaskedCompareSwap, words);
    let wanted = Change::CompareSwap {
        compare: 1,
        swap: 2,
        compare_mask: 3,
        swap_mask: 4,
    };
    assert_eq!(masked.change, wanted);
    assert!(masked.change.is_masked());
    for odd in [1, 7, u64::MAX - 104, u64::MAX] {
        let at = parse(AtomicKind::FetchAdd, [cookie, 0, odd, 1, 0, 0, 0, 0, 0]);
        assert_eq!(at.remote_address(), Err(ArgError::Invalid), "{odd:#x}");
    }
}

#[test]
fn atomics_of_uek() {
    use AtomicKind::*;
    let parse = |kind, value, compare| {
        let cookie = Cookie { rkey: 5, offset: 8 }.to_bits();
        let words = [cookie, 0x5000, 16, value, compare, 0x20, 77];
        AtomicArgs::parse(kind, &bytes::<56>(&words))
    };
    let add = parse(FetchAdd, 3, 0).unwrap();
    let wanted = Change::FetchAdd {
        add: 3,
        boundary: 0,
    };
    assert_eq!(add.change, wanted);
    assert_eq!((add.cookie.rkey, add.local_address), (5, 0x5000));
    assert_eq!((add.remote_address(), add.token), (Ok(24), 77));
    assert!(add.flags.contains(RdmaFlags::NOTIFY_ME));
    assert_eq!(parse(FetchAdd, 3, 1), None);
    let wanted = Change::CompareSwap {
        compare: 1,
        swap: 3,
        compare_mask: u64::MAX,
        swap_mask: u64::MAX,
    };
    assert_eq!(parse(CompareSwap, 3, 1).unwrap().change, wanted);
    for compare in [0, 1] {
        assert_eq!(parse(MaskedFetchAdd, 3, compare), None);
        assert_eq!(parse(MaskedCompareSwap, 3, compare), None);
    }
}

#[test]
fn lengths_of_atomics() {
    let taken = |kind| {
        let is_taken = |len: &usize| AtomicArgs::parse(kind, &vec![0; *len]).is_some();
        (0..100).filter(is_taken).collect::<Vec<_>>()
    };
    let long: Vec<_> = (72..100).collect();
    for kind in [AtomicKind::FetchAdd, AtomicKind::CompareSwap] {
        assert_eq!(taken(kind), [&[56], &long[..]].concat());
    }
    for kind in [AtomicKind::MaskedFetchAdd, AtomicKind::MaskedCompareSwap] {
        assert_eq!(taken(kind), long);
    }
}

#[test]
fn masks_without_effect() {
    let parse = |kind, words: [u64; 9]| {
        AtomicArgs::parse(kind, &bytes::<72>(&words))
            .unwrap()
            .change
    };
    let plain = [0, 0, 0, 1, 2, 0, 0, 0, 0];
    let add = parse(AtomicKind::MaskedFetchAdd, [0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(add, parse(AtomicKind::FetchAdd, plain));
    assert!(!add.is_masked());
    let swap = |one, other| {
        parse(
            AtomicKind::MaskedCompareSwap,
            [0, 0, 0, 1, 2, one, other, 0, 0],
        )
    };
    assert_eq!(
        swap(u64::MAX, u64::MAX),
        parse(AtomicKind::CompareSwap, plain)
    );
    assert!(!swap(u64::MAX, u64::MAX).is_masked());
    assert!(swap(u64::MAX, 1).is_masked() && swap(1, u64::MAX).is_masked());
}

#[test]
fn extras() {
    let memory = Some(Cookie {
        rkey: 0x0102_0304,
        offset: 0x0506_0708,
    });
    assert_eq!(RdmaExthdrs::read(&RdmaExthdrs::default().emit()), None);
    for extras in [
        RdmaExthdrs { memory, used: None },
        RdmaExthdrs {
            memory: None,
            used: Some(9),
        },
        RdmaExthdrs {
            memory,
            used: Some(9),
        },
    ] {
        assert_eq!(RdmaExthdrs::read(&extras.emit()), Some(extras));
    }
    let both = RdmaExthdrs {
        memory,
        used: Some(9),
    }
    .emit();
    assert_eq!(both, [2, 0, 0, 0, 9, 3, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);
}

#[test]
fn ends() {
    for number in 0..5 {
        assert_eq!(Status::from_number(number).unwrap() as i32, number);
    }
    assert_eq!(Status::from_number(-1), None);
    assert_eq!(Status::from_number(5), None);
}

proptest! {
    #[test]
    fn no_number_makes_trouble(words in any::<[u64; 7]>(), areas in any::<Vec<(u64, u64)>>()) {
        if let Ok(transfer) = Transfer::parse(&bytes(&words)) {
            prop_assert!((1..=MAX_LOCAL).contains(&transfer.local_count));
            let _ = transfer.remote_address();
            let areas = areas.into_iter().map(|(address, bytes)| Area { address, bytes });
            if let Ok(bytes) = transfer.local_bytes(areas, 4096) {
                prop_assert!(u64::from(bytes) <= transfer.remote.bytes);
            }
        }
    }
}
