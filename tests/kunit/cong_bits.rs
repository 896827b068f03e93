// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the congestion map and of the hysteresis that sets and clears its bits.

use crate::proto::{
    cong_bits::*,
    rcvbuf::{
        transition,
        Transition, //
    }, //
};
use kernel::prelude::*;

#[kunit_tests(rds_cong_bits)]
mod suite {
    use super::*;

    #[test]
    fn place_of_a_port() {
        for port in [0u16, 1, 63, 64, 4000, 65535] {
            let wire = mask(port).to_le_bytes();
            let byte = word(port) * 8 + usize::from(port % 64 / 8);
            assert_eq!(byte, usize::from(port / 8));
            assert_eq!(wire[byte % 8], 1 << (port % 8));
        }
    }

    #[test]
    fn set_and_clear() -> Result {
        let mut map = KBox::new([0; WORDS], GFP_KERNEL)?;
        assert!(set(&mut map, 65535));
        assert!(!set(&mut map, 65535));
        assert!(test(&map, 65535));
        assert!(!test(&map, 65534));
        assert_eq!(map[WORDS - 1], 1 << 63);
        assert!(clear(&mut map, 65535));
        assert!(!clear(&mut map, 65535));
        Ok(())
    }

    #[test]
    fn ports_that_got_free() {
        let old = [0b0110, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x80];
        let new = [0b1100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut freed = words(&old)
            .zip(words(&new))
            .map(|(old, new)| uncongested(old, new));
        assert_eq!(freed.next(), Some(0b0010));
        assert_eq!(freed.next(), Some(1 | 1 << 63));
        assert_eq!(freed.next(), None);
    }

    #[test]
    fn hysteresis() {
        assert_eq!(transition(false, 100, 100), Transition::None);
        assert_eq!(transition(false, 101, 100), Transition::Congested);
        assert_eq!(transition(true, 50, 100), Transition::None);
        assert_eq!(transition(true, 49, 100), Transition::Cleared);
    }
}
