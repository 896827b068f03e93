// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of what arrives: what a device says that cannot be, and what it takes no buffers for.

use kernel::prelude::*;

#[kunit_tests(rds_ib_receives)]
mod suite {
    use super::super::bench::*;
    use crate::{
        conn::Counter,
        kapi::rdma::{
            fake::{Script, FLUSHED, LOCAL_PROTECTION},
            WcStatus,
        },
        proto::wire::Header,
    };
    use kernel::prelude::*;

    /// Returns the effect of a first frame that the device says has `told` bytes, or fails: how many connections end
    /// for it, how many frames are dropped for what is in them, and how many buffers are never given back.
    fn first_frame(told: u32, status: WcStatus) -> Result<(u64, u64, usize)> {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let arrived = bench.fake.receive(1, &[0; Header::LEN], told, status);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let resets = bench.counted(Counter::ConnReset);
        let dropped =
            bench.counted(Counter::RecvDropBadHeader) + bench.counted(Counter::RecvDropBadFragment);
        let left = bench.end(connection);
        if !arrived {
            return Err(ENOENT);
        }
        Ok((resets, dropped, left))
    }

    #[test]
    fn a_frame_without_room_for_a_header_ends_its_connection() -> Result {
        assert_eq!(first_frame(10, WcStatus::SUCCESS)?, (1, 1, 0));
        Ok(())
    }

    #[test]
    fn a_frame_that_is_longer_than_its_buffer_ends_its_connection() -> Result {
        assert_eq!(first_frame(u32::MAX, WcStatus::SUCCESS)?, (1, 1, 0));
        Ok(())
    }

    #[test]
    fn a_receive_that_fails_ends_its_connection() -> Result {
        // Its length means nothing then.
        for status in [FLUSHED, LOCAL_PROTECTION] {
            assert_eq!(first_frame(u32::MAX, status)?, (1, 0, 0));
        }
        Ok(())
    }

    #[test]
    fn a_receive_that_the_device_refuses_is_posted_a_moment_later() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.await_receives(1, RECEIVES)?;
        bench.fake.set_script(Script {
            receive_error: ENOMEM.to_errno(),
            ..Script::default()
        });
        // The ring is refilled when a quarter of it is gone.
        for _ in 0..RECEIVES / 4 {
            bench.hear(1, 0, 0)?;
        }
        bench.await_receives(1, RECEIVES)?;
        let from_thread = bench.counted(Counter::IbRxRefillFromThread);
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((from_thread, resets, left), (1, 0, 0));
        Ok(())
    }
}
