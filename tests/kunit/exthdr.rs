// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the header extensions.

use crate::proto::exthdr::*;
use kernel::prelude::*;

#[kunit_tests(rds_exthdr)]
mod suite {
    use super::*;

    #[test]
    fn probe() {
        let mut writer = ExthdrWriter::new();
        assert_eq!(writer.push(Extension::NPaths(8)), Ok(()));
        assert_eq!(writer.push(Extension::GenNum(0x0a0b_0c0d)), Ok(()));
        assert_eq!(writer.push(Extension::SportIdx(0)), Ok(()));
        let bytes = writer.finish();
        assert_eq!(bytes, [5, 0, 8, 6, 10, 11, 12, 13, 8, 0, 0, 0, 0, 0, 0, 0]);

        let mut read = Extensions::new(&bytes);
        assert_eq!(read.next(), Some(Extension::NPaths(8)));
        assert_eq!(read.next(), Some(Extension::GenNum(0x0a0b_0c0d)));
        assert_eq!(read.next(), Some(Extension::SportIdx(0)));
        assert_eq!(read.next(), None);
    }

    #[test]
    fn a_full_space_refuses_more() {
        let mut writer = ExthdrWriter::new();
        let dest = Extension::RdmaDest { rkey: 1, offset: 2 };
        assert_eq!(writer.push(dest), Ok(()));
        assert_eq!(writer.push(dest), Err(NoSpace));
        let bytes = writer.finish();
        assert_eq!(bytes, [3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn reading_stops_at_the_unknown_and_at_the_end() {
        let unknown = [5, 0, 3, 10, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Extensions::new(&unknown).count(), 1);
        let cut_off = [6, 0, 0, 0, 1, 3, 0, 0, 0, 2, 0, 0, 0, 3, 5, 0];
        assert_eq!(Extensions::new(&cut_off).count(), 2);
    }
}
