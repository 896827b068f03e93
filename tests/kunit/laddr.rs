// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of lookups of local addresses.

use kernel::prelude::*;

#[kunit_tests(rds_laddr)]
mod suite {
    use crate::cm::laddr::kunit::{
        AddrKey,
        AddrTable,
        LookupKey,
        LookupPlace,
        Lookups,
        Set, //
    };
    use kernel::prelude::*;

    /// Number of lookups in progress, one for each thread of one user.
    const MANY: u64 = 30_000;

    #[test]
    fn the_same_address_is_looked_up_once_in_an_epoch() -> Result {
        let sets = [const { Set::new() }; 1];
        let table = AddrTable::new(&sets);
        let mut lookups = Lookups::new();
        let mut begin = |addr, value| -> Result<Option<u8>> {
            let key = LookupKey::new(AddrKey::new((0, addr), 0), table.epoch());
            Ok(lookups.begin(key, value, LookupPlace::new()?))
        };
        assert_eq!(begin(1, 10)?, None);
        assert_eq!(begin(1, 11)?, Some(10));
        assert_eq!(begin(2, 12)?, None);
        table.flush();
        assert_eq!(begin(1, 13)?, None);
        assert_eq!(begin(1, 14)?, Some(13));
        let key = LookupKey::new(AddrKey::new((0, 1), 0), table.epoch());
        assert_eq!((lookups.end(&key), lookups.end(&key)), (Some(13), None));
        Ok(())
    }

    #[test]
    fn many_lookups_are_found() -> Result {
        let sets = [const { Set::new() }; 1];
        let table = AddrTable::new(&sets);
        let key = |addr| LookupKey::new(AddrKey::new((0, addr), 0), table.epoch());
        let mut lookups = Lookups::new();
        for addr in 0..MANY {
            assert_eq!(lookups.begin(key(addr), addr, LookupPlace::new()?), None);
        }
        for addr in (0..MANY).rev() {
            assert_eq!(lookups.end(&key(addr)), Some(addr));
        }
        Ok(())
    }
}
