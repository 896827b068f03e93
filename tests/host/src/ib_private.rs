// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/ib_private.rs`.

use crate::proto::ib_private::*;
use crate::proto::wire::FragmentSize;
use crate::vectors::PRIVATE_V4;
use proptest::prelude::*;

fn private(major: u8, minor: u8, minor_mask: u16) -> Private {
    Private {
        saddr: Addr::from_v4([192, 168, 1, 2]),
        daddr: Addr::from_v4([10, 0, 0, 1]),
        major,
        minor,
        minor_mask,
        ..Private::default()
    }
}

#[test]
fn golden_bytes_v4() {
    let (private, bytes) = PRIVATE_V4;
    assert_eq!(private.emit_v4(), Some(bytes));
    assert_eq!(Private::parse_v4(&bytes), Ok(private));
    let mut padded = [0; 56];
    padded[..32].copy_from_slice(&bytes);
    assert_eq!(Private::parse_v4(&padded), Ok(private));
}

#[test]
fn gids_of_roce_are_addresses() {
    let v4 = Addr::from_v4([10, 8, 0, 1]);
    let v6 = Addr(*b"\xfd\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    let link_local = Addr(*b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55");
    let other = Addr(*b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x56");
    let compatible = Addr(*b"\0\0\0\0\0\0\0\0\0\0\0\0\x0a\x08\0\x01");
    let all = [v4, v6, link_local, other, compatible];
    for addr in all {
        for gid in all {
            // This includes link-local GIDs, which kernels before 3.14 used with any IP address.
            assert_eq!(RoceGid(gid.0).may_have(addr), addr == gid);
        }
    }
}

proptest! {
    #[test]
    fn a_gid_of_roce_speaks_for_one_address(gid: [u8; 16], at in 0..16_usize, bit in 0..8_u8) {
        let mut addr = Addr(gid);
        prop_assert!(RoceGid(gid).may_have(addr));
        addr.0[at] ^= 1 << bit;
        prop_assert!(!RoceGid(gid).may_have(addr));
    }
}

#[test]
fn golden_bytes_v6() {
    let private = Private {
        saddr: Addr(*b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"),
        daddr: Addr(*b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02"),
        tos: 7,
        ..private(4, 1, 3)
    };
    let bytes = private.emit_v6();
    let mut expected = [0; 56];
    expected[0] = 0xfe;
    expected[1] = 0x80;
    expected[15] = 1;
    expected[16] = 0xfe;
    expected[17] = 0x80;
    expected[31] = 2;
    expected[32..40].copy_from_slice(&[4, 1, 0, 3, 7, 0, 0, 0]);
    assert_eq!(bytes, expected);
    assert_eq!(Private::parse_v6(&bytes), Ok(private));
    assert_eq!(private.emit_v4(), None);
}

#[test]
fn short_or_absent_data() {
    let v4 = private(3, 1, 3).emit_v4().unwrap();
    let v6 = private(3, 1, 3).emit_v6();
    for len in 0..v4.len() {
        assert_eq!(Private::parse_v4(&v4[..len]), Err(PrivateError::Short(len)));
    }
    for len in 0..v6.len() {
        assert_eq!(Private::parse_v6(&v6[..len]), Err(PrivateError::Short(len)));
    }
    assert_eq!(Private::parse_v4(&[0; 56]), Err(PrivateError::NoVersion));
    assert_eq!(Private::parse_v6(&[0; 56]), Err(PrivateError::NoVersion));
}

#[test]
fn numbers_that_peers_rely_on() {
    assert_eq!((PORT_V4, PORT_V6), (18634, 16385));
    assert_eq!((LEN_V4, LEN_V6), (32, 56));
    assert_eq!(REJECT_INCOMPATIBLE_OR_RACE, 1);
    assert_eq!(MINOR_MASK, 3);
}

/// C RDS reads an `int`. It sends an `int`, or nothing.
#[test]
fn rejections() {
    for why in [Rejection::Version, Rejection::Other] {
        let data = why.data();
        assert_eq!(data[..4], 1u32.to_ne_bytes());
        assert_eq!(Rejection::parse(data), why);
        // The CM of InfiniBand always delivers 148 bytes.
        let mut padded = [0; 148];
        padded[..data.len()].copy_from_slice(data);
        assert_eq!(Rejection::parse(&padded), why);
    }
    for data in [&[1, 0, 0][..], &[0xff; 148], &[4, 1, 0, 32]] {
        assert_eq!(Rejection::parse(data), Rejection::Version);
    }
    for data in [&[][..], &[0; 3], &[0; 148]] {
        assert_eq!(Rejection::parse(data), Rejection::Unexplained);
    }
    assert_eq!(Rejection::Unexplained.data(), []);
}

/// Returns the numbers of the attempts that propose 3.1, if the peer rejects all in this way.
fn old_proposals(rejections: impl IntoIterator<Item = Rejection>) -> Vec<usize> {
    old_proposals_to(false, rejections)
}

fn old_proposals_to(
    ran_rds_rust: bool,
    rejections: impl IntoIterator<Item = Rejection>,
) -> Vec<usize> {
    let mut refusals = Refusals::default();
    let mut found = vec![];
    for (number, why) in rejections.into_iter().enumerate() {
        if Version::proposed(0, refusals) == Version::V3_1 {
            found.push(number);
        }
        assert_eq!(Version::proposed(1, refusals), Version::V4_1);
        refusals = Refusals::from_number(refusals.after(why, ran_rds_rust).number());
    }
    found
}

/// A rejection without data may mean anything: `rdma_accept()` of the peer may have failed.
#[test]
fn rejections_without_data_are_no_refusals_of_the_version_at_first() {
    use Rejection::{Other, Unexplained, Version};
    assert_eq!(old_proposals([Version; 9]), [2, 5, 8]);
    assert_eq!(old_proposals([Unexplained; 27]), [8, 17, 26]);
    assert_eq!(old_proposals([Other; 30]), []);
    assert_eq!(
        old_proposals([Other, Version, Other, Version, Other, Other, Version, Other]),
        [4, 5, 6]
    );
    // One with data counts as much as four without, or as what is missing to the half.
    let mixed = [
        Unexplained,
        Unexplained,
        Version,
        Unexplained,
        Version,
        Unexplained,
        Unexplained,
    ];
    assert_eq!(old_proposals(mixed), [5]);
}

/// A peer that ran this module knows 4.1. Another one may have replaced it.
#[test]
fn a_peer_that_ran_this_module_may_reject_many_times_without_data() {
    use Rejection::{Other, Unexplained, Version};
    assert_eq!(old_proposals_to(true, [Unexplained; 128]), []);
    assert_eq!(old_proposals_to(true, [Unexplained; 147]), [128, 137, 146]);
    // C RDS has replaced the peer, and says so.
    assert_eq!(old_proposals_to(true, [Version; 9]), [2, 5, 8]);
    let mixed = [
        Unexplained,
        Version,
        Other,
        Unexplained,
        Version,
        Unexplained,
        Unexplained,
    ];
    assert_eq!(old_proposals_to(true, mixed), [5]);
}

#[test]
fn mapped_addresses() {
    let addr = Addr::from_v4([1, 2, 3, 4]);
    assert_eq!(addr.to_v4(), Some([1, 2, 3, 4]));
    let compatible = Addr(*b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\x03\x04");
    assert_eq!(compatible.to_v4(), None);
    assert_eq!(Addr::default().to_v4(), None);
    assert!(Addr::from_v4([9, 255, 255, 255]) < Addr::from_v4([10, 0, 0, 0]));
}

fn agreed(version: Version, fragment: FragmentSize) -> Agreed {
    Agreed { version, fragment }
}

#[test]
fn passive_negotiation() {
    use FragmentSize::{K16, K4, K8};
    let reject = |major, minor| Err(Reject::Version { major, minor });
    for (major, minor, mask, expected) in [
        (3, 1, 3, Ok(agreed(Version::V3_1, K4))),
        (3, 1, 0, Ok(agreed(Version::V3_1, K4))),
        (3, 0, 3, reject(3, 0)),
        (3, 2, 3, reject(3, 2)),
        (4, 1, 3, Ok(agreed(Version::V4_1, K8))),
        (4, 1, 2, Ok(agreed(Version::V4_1, K8))),
        (4, 0, 1, Ok(agreed(Version::V4_0, K4))),
        (4, 9, 0xffff, Ok(agreed(Version::V4_1, K8))),
        (4, 1, 0, reject(4, 1)),
        (4, 2, 4, reject(4, 2)),
        (5, 1, 3, reject(5, 1)),
        (2, 1, 3, reject(2, 1)),
    ] {
        let request = Private {
            frag_size: 16384,
            ..private(major, minor, mask)
        };
        assert_eq!(negotiate(&request, K8), expected, "{major}.{minor}/{mask}");
    }
    for (frag_size, limit, expected) in [
        (0, K16, K4),
        (4096, K16, K4),
        (8192, K4, K4),
        (8192, K16, K8),
        (16383, K16, K8),
        (u16::MAX, K16, K16),
        (1, K16, K4),
    ] {
        let request = Private {
            frag_size,
            ..private(4, 1, 3)
        };
        assert_eq!(negotiate(&request, limit).unwrap().fragment, expected);
    }
}

#[test]
fn proposals() {
    let (old, new) = (Version::V3_1, Version::V4_1);
    let (here, there) = (Addr::from_v4([10, 0, 0, 1]), Addr::from_v4([10, 0, 0, 2]));
    for (version, expected) in [(old, 0), (Version::V4_0, 0), (new, 16384)] {
        let private = Private::new(here, there, 0, version, FragmentSize::K16, 0);
        assert_eq!(private.frag_size, expected);
    }
}

#[test]
fn active_check() {
    let (here, there) = (Addr::from_v4([10, 0, 0, 1]), Addr::from_v4([10, 0, 0, 2]));
    let request = Private::new(here, there, 3, Version::V4_1, FragmentSize::K8, 0);
    assert_eq!(
        (request.major, request.minor, request.frag_size),
        (4, 1, 8192)
    );
    for (version, frag_size, fragment) in [
        (Version::V3_1, 0, FragmentSize::K4),
        (Version::V3_1, 8192, FragmentSize::K4),
        (Version::V4_0, 8192, FragmentSize::K4),
        (Version::V4_1, 0, FragmentSize::K4),
        (Version::V4_1, 4096, FragmentSize::K4),
        (Version::V4_1, 8192, FragmentSize::K8),
    ] {
        let reply = Private {
            frag_size,
            ..Private::new(there, here, 3, version, FragmentSize::K4, 0)
        };
        assert_eq!(check_reply(&request, &reply), Ok(agreed(version, fragment)));
    }
    let reply = Private::new(there, here, 3, Version::V3_1, FragmentSize::K4, 0);
    for (change, expected) in [
        (
            Private {
                saddr: here,
                ..reply
            },
            Reject::Addresses,
        ),
        (
            Private {
                daddr: there,
                ..reply
            },
            Reject::Addresses,
        ),
        (Private { tos: 0, ..reply }, Reject::Tos(0)),
        (
            Private {
                frag_size: 16384,
                ..reply
            },
            Reject::Fragment(16384),
        ),
        (
            Private { minor: 0, ..reply },
            Reject::Version { major: 3, minor: 0 },
        ),
        (
            Private {
                major: 4,
                minor: 2,
                ..reply
            },
            Reject::Version { major: 4, minor: 2 },
        ),
    ] {
        assert_eq!(check_reply(&request, &change), Err(expected));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(data in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(private) = Private::parse_v4(&data) {
            let out = private.emit_v4().unwrap();
            prop_assert_eq!(Private::parse_v4(&out), Ok(private));
            prop_assert_eq!(&out[..13], &data[..13]);
            prop_assert_eq!(&out[14..28], &data[14..28]);
            let _ = negotiate(&private, FragmentSize::K16);
        }
        if let Ok(private) = Private::parse_v6(&data) {
            let out = private.emit_v6();
            prop_assert_eq!(Private::parse_v6(&out), Ok(private));
            prop_assert_eq!(&out[..37], &data[..37]);
            prop_assert_eq!(&out[38..52], &data[38..52]);
            let _ = negotiate(&private, FragmentSize::K16);
        }
    }
}
