// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of a queue pair whose handler cannot handle a message yet.

use kernel::prelude::*;

#[kunit_tests(rds_ib_pauses)]
mod suite {
    use super::super::bench::eventually;
    use crate::kapi::{
        rdma::{
            fake::{
                queue_pair,
                FakeDevice, //
            },
            Arena,
            Batch,
            Failure,
            Pd,
            Qp,
            QpConfig,
            QpEvent,
            QpHandler,
            Queue,
            Received,
            WcStatus, //
        },
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        }, //
    };

    /// Receives that are posted. More than one batch of completions.
    const RECEIVES: u32 = 40;

    /// A handler that handles as many messages as it may, and refuses others.
    #[pin_data]
    struct Sparing {
        /// Messages that it may handle.
        may: Atomic<u32>,
        /// First byte of a message that it always refuses.
        never: Atomic<u32>,
        /// Attempts that it has refused.
        refused: Atomic<u32>,
        failed: Atomic<u32>,
        /// The first byte of each message that it has handled.
        #[pin]
        seen: SpinLockBh<KVec<u8>>,
    }

    impl QpHandler for Sparing {
        type Poll = ();

        fn received(&self, _: &Qp<Self>, (): &mut (), message: Received) -> Result<u32, Received> {
            let first = message.buf.bytes().first().copied().unwrap_or(0);
            let may = self.may.load(Relaxed);
            if may == 0 || u32::from(first) == self.never.load(Relaxed) {
                self.refused.fetch_add(1, Relaxed);
                return Err(message);
            }
            self.may.store(may - 1, Relaxed);
            // The list has room.
            let _ = self.seen.lock().push_within_capacity(first);
            Ok(1)
        }

        fn sent(&self, _: &Qp<Self>, _: usize) {}

        fn failed(&self, _: &Qp<Self>, _: Failure) {
            self.failed.fetch_add(1, Relaxed);
        }

        fn unexpected_opcode(&self, _: u32) {}

        fn out_of_order(&self, _: Queue) {
            self.failed.fetch_add(100, Relaxed);
        }

        fn not_flushed(&self, _: Error) {
            self.failed.fetch_add(1000, Relaxed);
        }

        fn polled(&self, _: &Qp<Self>, (): &mut ()) {}

        fn notified(&self) {}

        fn event(&self, _: &Qp<Self>, _: QpEvent) {}
    }

    /// Fields are dropped in this order.
    struct Bench {
        qp: Arc<Qp<Sparing>>,
        arena: Arc<Arena>,
        _pd: Arc<Pd>,
        fake: FakeDevice,
    }

    impl Bench {
        fn new(may: u32) -> Result<Self> {
            let fake = FakeDevice::new(false, true)?;
            let pd = Pd::new(fake.device())?;
            let arena = Arena::new(Some(&pd), None, 256)?;
            let config = QpConfig {
                max_send_wr: 4,
                max_recv_wr: RECEIVES,
                report_every: 1,
                wait_for_reads: false,
            };
            let seen = KVec::with_capacity(RECEIVES as usize, GFP_KERNEL)?;
            let handler = pin_init!(Sparing {
                may: Atomic::new(may),
                never: Atomic::new(u32::MAX),
                refused: Atomic::new(0),
                failed: Atomic::new(0),
                seen <- new_spinlock_bh!(seen, "Sparing::seen"),
            });
            let qp = queue_pair(&pd, config, handler, ())?;
            arena.grow(4, 4, usize::MAX, true).map_err(|_| ENOMEM)?;
            let mut left = RECEIVES;
            while left > 0 {
                let mut batch = Batch::new();
                Arena::take(&arena, left as usize, &mut batch);
                left -= qp.post_recv(&mut batch)?;
            }
            Ok(Self {
                qp,
                arena,
                _pd: pd,
                fake,
            })
        }

        /// Lets messages with the numbers from `first` on arrive.
        fn arrive(&self, first: u8, count: u8) {
            for number in first..first + count {
                assert!(self.fake.receive(1, &[number], 1, WcStatus::SUCCESS));
            }
        }

        fn refused(&self) -> u32 {
            self.qp.handler().refused.load(Relaxed)
        }

        /// Allows `count` more messages, and resumes.
        fn resume(&self, count: u32) {
            self.qp.handler().may.store(count, Relaxed);
            self.qp.resume();
        }

        fn await_seen(&self, count: usize) -> Result {
            eventually(|| self.qp.handler().seen.lock().len() >= count)
        }

        fn is_in_order(&self) -> bool {
            let seen = self.qp.handler().seen.lock();
            (0u8..)
                .zip(seen.iter())
                .all(|(number, seen)| number == *seen)
        }

        /// Closes the queue pair. Returns how many buffers are in use, and the number of failures.
        fn end(self) -> (usize, u32) {
            self.qp.close();
            let failed = self.qp.handler().failed.load(Relaxed);
            (self.arena.stats().in_use, failed)
        }
    }

    #[test]
    fn a_message_that_was_refused_comes_again_before_the_others() -> Result {
        let bench = Bench::new(5)?;
        bench.arrive(0, 30);
        eventually(|| bench.refused() > 0)?;
        bench.await_seen(5)?;
        // Nothing is polled, so later messages wait, too.
        bench.arrive(30, 10);
        let before = bench.qp.handler().seen.lock().len();
        bench.resume(3);
        eventually(|| bench.refused() > 1)?;
        let between = bench.qp.handler().seen.lock().len();
        bench.resume(u32::MAX);
        bench.await_seen(RECEIVES as usize)?;
        let in_order = bench.is_in_order();
        assert_eq!((before, between, in_order), (5, 8, true));
        assert_eq!(bench.end(), (0, 0));
        Ok(())
    }

    #[test]
    fn a_queue_pair_that_waits_for_its_handler_can_be_closed() -> Result {
        let bench = Bench::new(2)?;
        bench.arrive(0, 20);
        eventually(|| bench.refused() > 0)?;
        bench.await_seen(2)?;
        let in_order = bench.is_in_order();
        assert!(in_order);
        // The receives that are left are flushed, which is reported once. All buffers are freed.
        assert_eq!(bench.end(), (0, 1));
        Ok(())
    }

    #[test]
    fn no_message_overtakes_one_that_is_dropped_because_its_queue_pair_is_closed() -> Result {
        const NEVER: u32 = 4;
        let bench = Bench::new(2)?;
        bench.qp.handler().never.store(NEVER, Relaxed);
        bench.arrive(0, 20);
        eventually(|| bench.refused() > 0)?;
        bench.qp.handler().may.store(u32::MAX, Relaxed);
        bench.qp.close();
        let seen = bench.qp.handler().seen.lock().len();
        let in_order = bench.is_in_order();
        assert_eq!((seen, in_order), (NEVER as usize, true));
        assert_eq!(bench.end(), (0, 1));
        Ok(())
    }
}
