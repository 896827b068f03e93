// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the times at which sockets may send again.

use kernel::prelude::*;

#[kunit_tests(rds_retry_timers)]
mod suite {
    use crate::{
        kapi::{
            net::FakeSocket,
            sync::ReadOnce,
            time, //
        },
        socket::Socket, //
    };
    use kernel::{
        prelude::*,
        time::{
            delay::fsleep,
            Delta, //
        }, //
    };

    /// Time after which a socket may send again.
    const WAIT_NS: u64 = 50_000_000;
    /// Longest test.
    const LONGEST_NS: u64 = 10_000_000_000;

    /// A program that does not wait for its time gets no earlier one. It does not delay the wake-up
    /// of another socket.
    #[test]
    fn a_program_that_calls_too_early_delays_no_other() -> Result {
        let (eager, patient) = (
            FakeSocket::<Socket>::new()?,
            FakeSocket::<Socket>::new()?, //
        );
        let node = &eager.node;
        let begun = time::monotonic_ns();
        // The timer is that of the first socket.
        node.wake_writers_after(&eager, WAIT_NS)?;
        node.wake_writers_after(&patient, WAIT_NS)?;
        let mut passed = 0;
        while patient.retry_at.read_once() != 0 && passed < LONGEST_NS {
            let before = time::monotonic_ns();
            passed = before.saturating_sub(begun);
            node.wake_writers_after(&eager, WAIT_NS)?;
            // 0 if its time has come since.
            let at = eager.retry_at.read_once();
            assert!(at == 0 || at > before);
            fsleep(Delta::from_millis(30));
        }
        assert!(passed < LONGEST_NS);
        Ok(())
    }
}
