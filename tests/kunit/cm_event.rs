// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of CM events.

use kernel::prelude::*;

#[kunit_tests(rds_cm_event)]
mod suite {
    use crate::kapi::rdma::CmEvent;
    use kernel::prelude::*;

    /// Returns the reject statuses that are attributed to the peer's consumer. All others come from
    /// the CM.
    fn by_consumer(statuses: impl Iterator<Item = i32>, refuses_by_reset: bool) -> KVec<i32> {
        let mut found = KVec::new();
        for status in statuses {
            let event = CmEvent::rejected(status, &[], refuses_by_reset);
            let CmEvent::Rejected {
                reason,
                by_consumer,
                ..
            } = event
            else {
                pr_err!("{status} is no rejection\n");
                return KVec::new();
            };
            let what = if by_consumer { "refused" } else { "rejected" };
            if event.failure() != Some((what, status)) {
                pr_err!("{status} is traced as {:?}\n", event.failure());
                return KVec::new();
            }
            if reason != status || (by_consumer && found.push(status, GFP_KERNEL).is_err()) {
                pr_err!("{status} became {reason}\n");
                return KVec::new();
            }
        }
        found
    }

    #[test]
    fn reasons_of_infiniband() {
        // IB_CM_REJ_CONSUMER_DEFINED.
        let found = by_consumer(0..=0xffff, false);
        assert_eq!(found.as_slice(), [28].as_slice());
    }

    #[test]
    fn error_numbers_of_iwarp() {
        // ECONNREFUSED, and ECONNRESET for drivers that report a reject as a reset.
        let found = by_consumer(-4095..=-1, false);
        assert_eq!(found.as_slice(), [-111].as_slice());
        let found = by_consumer(-4095..=-1, true);
        assert_eq!(found.as_slice(), [-111, -104].as_slice());
    }
}
