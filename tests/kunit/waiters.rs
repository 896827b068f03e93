// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of sockets that wait for room.

use kernel::prelude::*;

#[kunit_tests(rds_waiters)]
mod suite {
    use crate::{
        kapi::net::FakeSocket,
        socket::{
            Socket,
            Waiters, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    const PORT: u16 = 4000;
    /// Number of sockets that a softirq wakes.
    const AT_ONCE: usize = 64;
    const COUNT: usize = 2 * AT_ONCE + 1;

    /// A peer decides when its ports have room, and for how many sockets.
    #[test]
    fn a_softirq_wakes_few_sockets_and_leaves_the_rest_to_work() -> Result {
        let waiters = Arc::pin_init(Waiters::new(), GFP_KERNEL)?;
        let mut sockets = KVec::new();
        for _ in 0..COUNT {
            let sk = FakeSocket::<Socket>::new()?;
            waiters.add(&sk, PORT, false)?;
            sockets.push(sk, GFP_KERNEL)?;
        }
        let waiting = || sockets.iter().filter(|sk| waiters.has(sk, PORT)).count();
        let ports = 1 << (PORT % 64);
        let first = (waiters.wake_some(ports), waiting());
        waiters.wake_rest();
        assert_eq!(first, (true, COUNT - AT_ONCE));
        assert_eq!(waiting(), 0);
        Ok(())
    }
}
