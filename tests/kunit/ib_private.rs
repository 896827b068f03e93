// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the CM private data.

use super::vectors::PRIVATE_V4;
use crate::proto::{
    ib_private::*,
    wire::FragmentSize, //
};
use kernel::prelude::*;

#[kunit_tests(rds_ib_private)]
mod suite {
    use super::*;

    #[test]
    fn golden_bytes_v4() {
        let (request, bytes) = PRIVATE_V4;
        assert_eq!(request.emit_v4(), Some(bytes));
        assert_eq!(Private::parse_v4(&bytes), Ok(request));
        assert_eq!(
            Private::parse_v4(&bytes[..31]),
            Err(PrivateError::Short(31))
        );
    }

    #[test]
    fn ipv6_uses_all_of_its_space() {
        let request = Private {
            saddr: Addr([1; 16]),
            daddr: Addr([2; 16]),
            ack_seq: u64::MAX,
            credit: u32::MAX,
            frag_size: 0x4000,
            ..request()
        };
        let bytes = request.emit_v6();
        assert_eq!(bytes.len(), 56);
        assert_eq!(Private::parse_v6(&bytes), Ok(request));
        assert_eq!(request.emit_v4(), None);
    }

    #[test]
    fn zeros_are_no_private_data() {
        assert_eq!(Private::parse_v4(&[0; 56]), Err(PrivateError::NoVersion));
        assert_eq!(Private::parse_v6(&[0; 56]), Err(PrivateError::NoVersion));
    }

    #[test]
    fn versions() {
        let offer = |major, minor, minor_mask| {
            let request = Private {
                major,
                minor,
                minor_mask,
                ..request()
            };
            negotiate(&request, FragmentSize::K16)
        };
        let agreed = |version, fragment| Ok(Agreed { version, fragment });
        assert_eq!(offer(3, 1, 0), agreed(Version::V3_1, FragmentSize::K4));
        assert_eq!(offer(4, 1, 3), agreed(Version::V4_1, FragmentSize::K8));
        assert_eq!(offer(4, 0, 1), agreed(Version::V4_0, FragmentSize::K4));
        assert_eq!(offer(4, 2, 4), Err(Reject::Version { major: 4, minor: 2 }));
        assert_eq!(offer(3, 0, 3), Err(Reject::Version { major: 3, minor: 0 }));
    }

    #[test]
    fn replies() {
        let request = request();
        let reply = Private::new(
            request.daddr,
            request.saddr,
            5,
            Version::V3_1,
            FragmentSize::K4,
            0,
        );
        let agreed = Agreed {
            version: Version::V3_1,
            fragment: FragmentSize::K4,
        };
        assert_eq!(check_reply(&request, &reply), Ok(agreed));
        let other = Private {
            saddr: Addr::from_v4([10, 0, 0, 3]),
            ..reply
        };
        assert_eq!(check_reply(&request, &other), Err(Reject::Addresses));
        let other = Private { tos: 0, ..reply };
        assert_eq!(check_reply(&request, &other), Err(Reject::Tos(0)));
    }

    fn request() -> Private {
        let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        Private::new(
            Addr::from_v4(here),
            Addr::from_v4(there),
            5,
            Version::proposed(5, Refusals::default()),
            FragmentSize::K8,
            0,
        )
    }
}
