// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the congestion maps of this node's addresses.

use kernel::prelude::*;

#[kunit_tests(rds_cong_map)]
mod suite {
    use crate::{
        cong::{MapKey, Registry},
        kapi::net::Net,
    };
    use core::net::Ipv6Addr;
    use kernel::prelude::*;

    const PORT: u16 = 4000;

    /// A link-local address, which may exist on each link.
    fn on_link(scope: u32) -> MapKey {
        MapKey {
            net: Net::init(),
            addr: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            scope,
        }
    }

    /// Returns `true` if peers on a link are notified that the port is full.
    fn is_full(maps: &Registry, scope: u32) -> bool {
        let mut word = [0xff; 8];
        maps.copy_fragment(on_link(scope), u32::from(PORT / 64 * 8), &mut word);
        u64::from_le_bytes(word) >> (PORT % 64) & 1 == 1
    }

    #[test]
    fn the_same_address_on_another_link_has_a_map_of_its_own() -> Result {
        let maps = Registry::new()?;
        let news = maps.mark(on_link(2), PORT, true)?;
        let told = [2, 3].map(|scope| is_full(&maps, scope));
        let other = maps.mark(on_link(3), PORT, true)?;
        let cleared = maps.mark(on_link(3), PORT, false)?;
        let left = [2, 3].map(|scope| is_full(&maps, scope));
        assert_eq!((news, other, cleared), (true, true, true));
        assert_eq!((told, left), ([true, false], [true, false]));
        Ok(())
    }
}
