// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the work requests of atomic operations, as posted to a device with masked
//! atomics. No software device has those.
//!
//! Needs QEMU's e1000: `scripts/rdsvm/hardware.py`.

use kernel::prelude::*;

#[kunit_tests(rds_atomics)]
mod suite {
    use crate::kapi::rdma::{
        stub::{
            asked_for,
            Asked,
            Opcode,
            StubDevice,
            ANY_NODE, //
        },
        Pd,
        Verb, //
    };
    use kernel::prelude::*;

    /// Fields that are the same in all requests; the values come from `asked_for`.
    const ASKED: Asked = Asked {
        opcode: Opcode::FetchAdd,
        signaled: false,
        lkey: 1,
        length: 8,
        address: 0x7000,
        rkey: 2,
        remote_address: 0x9000,
        compare_add: 0,
        swap: 0,
        compare_add_mask: 0,
        swap_mask: 0,
    };

    fn add(add: u64, boundary: u64) -> Verb {
        Verb::FetchAdd { add, boundary }
    }

    fn swap(compare_mask: u64, swap_mask: u64) -> Verb {
        Verb::CompareSwap {
            compare: 3,
            swap: 4,
            compare_mask,
            swap_mask,
        }
    }

    /// Returns the work request that the device gets, signaled or not.
    fn asked(verb: Verb, reports: bool) -> Result<Asked> {
        let stub = StubDevice::new(ANY_NODE)?;
        let pd = Pd::new(stub.device())?;
        asked_for(&pd, verb, reports)
    }

    #[test]
    fn a_sum_without_boundaries_is_the_plain_one() -> Result {
        let wanted = Asked {
            compare_add: u64::MAX,
            ..ASKED
        };
        assert_eq!(asked(add(u64::MAX, 0), false), Ok(wanted));
        Ok(())
    }

    #[test]
    fn a_sum_with_boundaries_is_a_masked_one() -> Result {
        for boundary in [1, 1 << 31, 1 << 63, u64::MAX] {
            let wanted = Asked {
                opcode: Opcode::MaskedFetchAdd,
                compare_add: 5,
                compare_add_mask: boundary,
                ..ASKED
            };
            assert_eq!(asked(add(5, boundary), false), Ok(wanted));
        }
        Ok(())
    }

    #[test]
    fn a_swap_of_all_bits_is_the_plain_one() -> Result {
        let wanted = Asked {
            opcode: Opcode::CompareSwap,
            compare_add: 3,
            swap: 4,
            compare_add_mask: u64::MAX,
            swap_mask: u64::MAX,
            ..ASKED
        };
        assert_eq!(asked(swap(u64::MAX, u64::MAX), false), Ok(wanted));
        Ok(())
    }

    #[test]
    fn a_swap_of_some_bits_is_a_masked_one() -> Result {
        for (compare_mask, swap_mask) in
            [(0, 0), (0xff, u64::MAX), (u64::MAX, 0xff00), (u64::MAX, 0)]
        {
            let wanted = Asked {
                opcode: Opcode::MaskedCompareSwap,
                compare_add: 3,
                swap: 4,
                compare_add_mask: compare_mask,
                swap_mask,
                ..ASKED
            };
            assert_eq!(asked(swap(compare_mask, swap_mask), false), Ok(wanted));
        }
        Ok(())
    }

    #[test]
    fn the_device_reports_only_signaled_requests() -> Result {
        for verb in [add(1, 0), add(1, 1), swap(u64::MAX, u64::MAX), swap(1, 1)] {
            let quiet = asked(verb, false)?;
            assert!(!quiet.signaled);
            assert_eq!(
                asked(verb, true)?,
                Asked {
                    signaled: true,
                    ..quiet
                }
            );
        }
        Ok(())
    }
}
