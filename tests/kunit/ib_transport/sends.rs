// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of sends: work requests that the device refuses, and the completions of the others.

use kernel::prelude::*;

#[kunit_tests(rds_ib_sends)]
mod suite {
    use super::super::{
        bench::*,
        operations::{
            operation,
            Recorder, //
        }, //
    };
    use crate::{
        ib_transport::qp_context::QpContext,
        kapi::rdma::{
            fake::{
                Kind,
                Script,
                FLUSHED,
                LOCAL_PROTECTION,
                LOST,
                NO_RECEIVE,
                REMOTE_ACCESS,
                RETRIES_EXCEEDED, //
            },
            PostError,
            Qp,
            SendChain,
            SendItem,
            Verb,
            WcStatus, //
        },
        msg::Message,
        proto::{
            completion_watchdog::WatchdogTimeout,
            wire::{
                Flags,
                FragmentSize, //
            }, //
        },
        recv_pool::Context,
        stats::Counter, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::Relaxed,
            Arc, //
        },
        time::{
            delay::fsleep,
            Delta, //
        }, //
    };

    /// The `wr_id` of the first send of a queue pair.
    const FIRST_SEND: u64 = 1 << 31;

    /// Returns a script by which the device refuses a send after `after` more.
    fn refuse(after: u32) -> Script {
        Script {
            sends_before_error: after,
            send_error: ENOMEM.to_errno(),
            ..Script::default()
        }
    }

    #[test]
    fn a_send_that_the_device_refuses_goes_out_on_the_next_connection() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let first = bench.sequences(1)?;
        bench.fake.set_script(refuse(0));
        bench.send(&connection, 1)?;
        bench.await_sends(2, MAP + 2)?;
        let again = bench.sequences(2)?;
        let flags = bench.header(2, MAP + 1).map(|header| header.flags);
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((first.len(), again.len(), resets), (1, 2, 1));
        assert_eq!(again.first(), first.first());
        assert!(again.is_sorted());
        assert!(flags.is_some_and(|flags| flags.contains(Flags::RETRANSMITTED)));
        assert_eq!(left, 0);
        Ok(())
    }

    #[test]
    fn a_batch_that_is_refused_in_part_comes_whole_on_the_next_connection() -> Result {
        let bench = Bench::new(Setup::default())?;
        bench.wire.waits.store(true, Relaxed);
        let connection = bench.connection()?;
        bench.send(&connection, 5)?;
        bench.await_receives(1, RECEIVES)?;
        bench.fake.set_script(refuse(MAP + 2));
        bench.establish();
        bench.await_sends(2, MAP + 5)?;
        let again = bench.sequences(2)?;
        let posted = bench.posted(2);
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((again.len(), posted, resets), (5, Some(MAP + 5), 1));
        assert!(again.windows(2).all(|two| two[1] == two[0] + 1));
        assert_eq!(left, 0);
        Ok(())
    }

    #[test]
    fn each_failure_of_a_send_ends_its_connection_once() -> Result {
        const ALL: [WcStatus; 5] = [
            FLUSHED,
            RETRIES_EXCEEDED,
            NO_RECEIVE,
            REMOTE_ACCESS,
            LOCAL_PROTECTION,
        ];
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        for (qp, status) in (1..).zip(ALL) {
            bench.fake.end_sends(qp, 1, status);
            bench.await_end(qp)?;
            bench.await_sends(qp + 1, MAP + 1)?;
        }
        let resets = bench.counted(Counter::ConnReset);
        let last = bench.fake.last_qp();
        let left = bench.end(connection);
        assert_eq!((resets, last, left), (5, 6, 0));
        Ok(())
    }

    #[test]
    fn frames_without_room_are_sent_when_there_is_some() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.send(&connection, ROOM)?;
        let full = bench.posted(1);
        let counted = bench.counted(Counter::IbTxRingFull);
        bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        bench.await_sends(1, MAP + 1 + ROOM)?;
        let rest = bench.sequences(1)?;
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((full, rest.len()), (Some(ROOM), 3));
        assert!(counted > 0);
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn payload_is_copied_again_piece_by_piece() -> Result {
        /// 64 KiB each, in frames of 4 KiB.
        const MESSAGES: u32 = 6;
        const ALL: u32 = MESSAGES * 16;
        /// 128 KiB of it.
        const FIRST: u32 = 32;
        let bench = Bench::new(Setup::default())?;
        bench.wire.waits.store(true, Relaxed);
        let connection = bench.connection()?;
        let pools = bench.pools().ok_or(ENODEV)?;
        for _ in 0..MESSAGES {
            let message = Message::of_len(&pools, FragmentSize::K16, 4000, 64 << 10)?;
            connection.send(message).map_err(|_| EINVAL)?;
        }
        bench.await_receives(1, RECEIVES)?;
        bench.establish();
        bench.await_sends(1, MAP + FIRST)?;
        // One call posts several chains. It is over once the queue can be locked.
        let _ = connection.path.info();
        let first = bench.posted(1);
        for _ in 0..ALL / FIRST {
            bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        }
        bench.await_sends(1, MAP + ALL)?;
        let resets = bench.counted(Counter::ConnReset);
        drop(pools);
        let left = bench.end(connection);
        assert_eq!(first, Some(MAP + FIRST));
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    /// Returns `true` if a frame is a part of the map.
    fn is_map(bench: &Bench, index: u32) -> Option<bool> {
        let header = bench.header(1, index)?;
        Some(header.flags.contains(Flags::CONG_BITMAP))
    }

    #[test]
    fn a_map_waits_for_a_buffer() -> Result {
        let bench = Bench::new(Setup::small_pools())?;
        let taken = bench.take_buffers(4096)?;
        let connection = bench.connection()?;
        bench.send(&connection, 1)?;
        bench.await_counted(Counter::IbTxAllocWait, 2)?;
        let before = bench.posted(1);
        drop(taken);
        bench.await_sends(1, MAP + 1)?;
        let after = [0, 1, MAP].map(|index| is_map(&bench, index));
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!(before, Some(0));
        assert_eq!(after, [Some(true), Some(true), Some(false)]);
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn frames_with_a_spare_buffer_report_when_it_is_free() -> Result {
        const FRAGMENTS: u32 = 16;
        let bench = Bench::new(Setup::small_pools())?;
        let connection = bench.connect()?;
        // The device may report no frame of the map.
        let pools = bench.pools().ok_or(ENODEV)?;
        let mut taken = bench.take_buffers(4096)?;
        drop((taken.pop(), taken.pop()));
        let message = Message::of_len(&pools, FragmentSize::K16, 4000, 64 << 10)?;
        connection.send(message).map_err(|_| EINVAL)?;
        for done in (2..=FRAGMENTS).step_by(2) {
            bench.await_sends(1, MAP + 1 + done)?;
            bench.end_sends(1, ROOM, WcStatus::SUCCESS)?;
        }
        let all = bench.posted(1);
        let resets = bench.counted(Counter::ConnReset);
        drop((taken, pools));
        let left = bench.end(connection);
        assert_eq!(all, Some(MAP + 1 + FRAGMENTS));
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn nothing_goes_between_the_parts_of_a_map() -> Result {
        let bench = Bench::new(Setup::small_pools())?;
        let mut taken = bench.take_buffers(4096)?;
        drop(taken.pop());
        let connection = bench.connection()?;
        bench.send(&connection, 1)?;
        bench.await_sends(1, 1)?;
        bench.await_counted(Counter::IbTxAllocWait, 2)?;
        let before = (is_map(&bench, 0), bench.posted(1));
        drop(taken);
        bench.await_sends(1, MAP + 1)?;
        let after = (is_map(&bench, 1), is_map(&bench, MAP));
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!(before, (Some(true), Some(1)));
        assert_eq!(after, (Some(true), Some(false)));
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn a_message_of_another_fragment_size_waits_for_a_buffer() -> Result {
        const CREDIT: u32 = 20;
        let bench = Bench::new(Setup {
            credit: CREDIT,
            ..Setup::small_pools()
        })?;
        let connection = bench.connect()?;
        let pools = bench.pools().ok_or(ENODEV)?;
        let taken = bench.take_buffers(4096)?;
        let message = Message::of_len(&pools, FragmentSize::K16, 4000, 64 << 10)?;
        connection.send(message).map_err(|_| EINVAL)?;
        bench.await_counted(Counter::IbTxAllocWait, 2)?;
        let before = bench.posted(1);
        drop(taken);
        // One of the credits is for a header that grants some.
        bench.await_sends(1, CREDIT - 1)?;
        let first = bench.header(1, MAP + 1);
        let resets = bench.counted(Counter::ConnReset);
        drop(pools);
        let left = bench.end(connection);
        assert_eq!(before, Some(MAP + 1));
        assert!(first.is_some_and(|it| it.len == 64 << 10));
        assert_eq!((resets, left), (0, 0));
        Ok(())
    }

    #[test]
    fn frames_without_credits_are_sent_when_the_peer_grants_some() -> Result {
        let bench = Bench::new(Setup {
            credit: MAP + 2,
            ..Setup::default()
        })?;
        let connection = bench.connect()?;
        bench.send(&connection, 5)?;
        let before = bench.posted(1);
        let throttled = bench.counted(Counter::IbTxThrottle);
        bench.hear(1, 0, 10)?;
        bench.await_sends(1, MAP + 6)?;
        let resets = bench.counted(Counter::ConnReset);
        bench.end(connection);
        assert_eq!((before, resets), (Some(MAP + 1), 0));
        assert!(throttled > 0);
        Ok(())
    }

    #[test]
    fn a_completion_of_another_work_request_than_the_next_ends_the_connection() -> Result {
        // Sends that were not posted, the second receive, and one that was not posted.
        let (good, later) = (WcStatus::SUCCESS, FIRST_SEND + 50);
        for (id, status, disorders) in [
            (later, good, 1),
            (FIRST_SEND + 5000, good, 1),
            (1, good, 1),
            (5000, good, 1),
            // These end the connection anyway.
            (later, FLUSHED, 0),
            (later, LOCAL_PROTECTION, 0),
            (1, FLUSHED, 0),
        ] {
            let bench = Bench::new(Setup::default())?;
            let connection = bench.connect()?;
            bench.fake.report(1, id, status);
            bench.await_end(1)?;
            bench.await_sends(2, MAP + 1)?;
            let counted = (
                bench.counted(Counter::IbOutOfOrder),
                bench.counted(Counter::ConnReset),
            );
            let left = bench.end(connection);
            assert_eq!((counted, left), ((disorders, 1), 0));
        }
        Ok(())
    }

    #[test]
    fn a_failure_completes_each_operation_once() -> Result {
        let heard = operate(|bench| {
            bench.fake.end_sends(1, MAP + 3, WcStatus::SUCCESS);
            bench.fake.end_sends(1, 1, REMOTE_ACCESS);
        })?;
        let good = WcStatus::SUCCESS;
        let all = [good, good, REMOTE_ACCESS, FLUSHED, FLUSHED];
        assert_eq!(heard, all.map(|status| (1, status)));
        Ok(())
    }

    #[test]
    fn an_operation_whose_report_was_lost_before_a_failure_is_not_known_to_be_done() -> Result {
        let heard = operate(|bench| {
            bench.fake.end_sends(1, MAP + 2, WcStatus::SUCCESS);
            bench.fake.end_sends(1, 1, LOST);
            bench.fake.end_sends(1, 1, RETRIES_EXCEEDED);
        })?;
        // It may not be over, nor may those after it.
        let never = (0, WcStatus::SUCCESS);
        assert_eq!(heard, [(1, WcStatus::SUCCESS), never, never, never, never]);
        Ok(())
    }

    #[test]
    fn an_operation_whose_report_was_lost_is_done_when_a_later_one_is() -> Result {
        let heard = operate(|bench| {
            bench.fake.end_sends(1, MAP + 1, WcStatus::SUCCESS);
            bench.fake.end_sends(1, 4, LOST);
            bench.fake.end_sends(1, 1, WcStatus::SUCCESS);
        })?;
        assert_eq!(heard, [(1, WcStatus::SUCCESS); 5]);
        Ok(())
    }

    #[test]
    fn frames_and_operations_go_in_their_order_and_with_a_fence() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let [who, ..] = Recorder::new()?;
        let qp = bench.qp().ok_or(ENODEV)?;
        let mut chain = Qp::chain(&qp);
        for (kind, fence) in [
            (Kind::Frame, false),
            (Kind::Read, false),
            (Kind::Frame, true),
        ] {
            add(&mut chain, kind, fence, &who)?;
        }
        drop(chain);
        let sent = [0, 1, 2].map(|index| {
            let sent = bench.fake.sent(1, MAP + 1 + index);
            sent.map(|it| (it.kind, it.fence))
        });
        drop(qp);
        bench.end(connection);
        let [frame, read] = [Some((Kind::Frame, false)), Some((Kind::Read, false))];
        assert_eq!(sent, [frame, read, Some((Kind::Frame, true))]);
        Ok(())
    }

    #[test]
    fn an_operation_that_the_device_refuses_comes_back_and_nothing_else_does() -> Result {
        const NOT_SUPPORTED: i32 = -95;
        for (error, reason) in [
            (ENOMEM.to_errno(), PostError::NotNow),
            (EINVAL.to_errno(), PostError::Never),
            (NOT_SUPPORTED, PostError::Never),
        ] {
            let bench = Bench::new(Setup::default())?;
            let connection = bench.connect()?;
            let [who, ..] = Recorder::new()?;
            let qp = bench.qp().ok_or(ENODEV)?;
            bench.fake.set_script(Script {
                // A frame precedes it.
                sends_before_error: 1,
                send_error: error,
                ..Script::default()
            });
            let mut chain = Qp::chain(&qp);
            add(&mut chain, Kind::Frame, false, &who)?;
            let refused = chain.operate(operation(&qp, Verb::Write, &who)?);
            add(&mut chain, Kind::Frame, false, &who)?;
            drop(chain);
            let posted = qp.send_progress().posted;
            let kinds = [0, 1].map(|index| bench.fake.sent(1, MAP + 1 + index).map(|it| it.kind));
            let why = refused.err().map(|(_, why)| why);
            drop(qp);
            bench.end(connection);
            let heard = who.ends.lock().0;
            assert_eq!((why, heard), (Some(reason), 0));
            assert_eq!(posted, u64::from(MAP) + 3);
            assert_eq!(kinds, [Some(Kind::Frame), Some(Kind::Frame)]);
        }
        Ok(())
    }

    #[test]
    fn a_device_that_refuses_atomic_operations_is_asked_once() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let [who, ..] = Recorder::new()?;
        let qp = bench.qp().ok_or(ENODEV)?;
        bench.fake.set_script(Script {
            no_atomics: true,
            ..Script::default()
        });
        let verb = Verb::FetchAdd {
            add: 1,
            boundary: 0,
        };
        let mut ends = [None; 3];
        for end in &mut ends {
            let refused = Qp::chain(&qp).operate(operation(&qp, verb, &who)?);
            *end = refused.err().map(|(_, why)| why);
        }
        let written = Qp::chain(&qp).operate(operation(&qp, Verb::Write, &who)?);
        let (written, asked) = (written.is_ok(), bench.fake.refused());
        drop(qp);
        bench.end(connection);
        assert_eq!(
            (ends, written, asked),
            ([Some(PostError::Never); 3], true, 1)
        );
        Ok(())
    }

    #[test]
    fn on_soft_iwarp_a_message_waits_until_reads_before_it_are_done() -> Result {
        let bench = Bench::new(Setup {
            soft_iwarp: true,
            ..Setup::default()
        })?;
        let connection = bench.connect()?;
        let [who, ..] = Recorder::new()?;
        let qp = bench.qp().ok_or(ENODEV)?;
        add(&mut Qp::chain(&qp), Kind::Read, false, &who)?;
        drop(qp);
        bench.send(&connection, 1)?;
        let before = bench.posted(1);
        bench.end_sends(1, MAP + 2, WcStatus::SUCCESS)?;
        bench.await_sends(1, MAP + 3)?;
        let resets = bench.counted(Counter::ConnReset);
        bench.end(connection);
        assert_eq!((before, resets), (Some(MAP + 2), 0));
        Ok(())
    }

    #[test]
    fn a_device_that_reports_nothing_is_asked_and_given_up() -> Result {
        // The device is asked after two seconds. On a busy machine this test must not pause until
        // it is given up.
        const LONG: WatchdogTimeout = WatchdogTimeout::new(16);
        const SHORT: WatchdogTimeout = WatchdogTimeout::new(1);
        let look_until = |bench: &Bench, counter, timeout| {
            for _ in 0..2000 {
                if bench.counted(counter) > 0 {
                    return Ok(());
                }
                if let Some(qp) = bench.qp() {
                    QpContext::check_progress(&qp, timeout);
                }
                // The timeout needs time to pass.
                fsleep(Delta::from_millis(5));
            }
            Err(ETIMEDOUT)
        };
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.send(&connection, 20)?;
        let posted = MAP + 21;
        bench.fake.end_sends(1, posted, LOST);
        look_until(&bench, Counter::IbTxWatchdogKick, LONG)?;
        bench.await_sends(1, posted + 1)?;
        bench.end_sends(1, 1, WcStatus::SUCCESS)?;
        let progress = bench.qp().map(|qp| qp.send_progress());
        let given_up = bench.counted(Counter::IbTxWatchdogTimeout);
        // This time even the watchdog's request is not completed.
        bench.send(&connection, 20)?;
        look_until(&bench, Counter::IbTxWatchdogTimeout, SHORT)?;
        bench.await_end(1)?;
        let resets = bench.counted(Counter::ConnReset);
        bench.end(connection);
        let progress = progress.map(|it| (it.done, it.due));
        assert_eq!(progress, Some((u64::from(posted) + 1, false)));
        assert_eq!((given_up, resets), (0, 1));
        Ok(())
    }

    /// Adds a frame, or an operation that reports to `who`.
    fn add(
        chain: &mut SendChain<'_, QpContext>,
        kind: Kind,
        fence: bool,
        who: &Arc<Recorder>,
    ) -> Result {
        let qp = chain.qp();
        let verb = match kind {
            Kind::Frame => {
                let buf = qp
                    .handler()
                    .device
                    .pools
                    .alloc_message(0, Context::Atomic)?
                    .freeze();
                return chain.push(SendItem {
                    buf,
                    len: 1,
                    solicited: false,
                    fence,
                });
            }
            Kind::Read => Verb::Read,
            _ => Verb::Write,
        };
        let posted = chain.operate(operation(qp, verb, who)?);
        posted.map_err(|_| EIO)
    }

    /// Returns the completions of operations that end as `end` does, before their queue pair is
    /// closed.
    fn operate(end: impl FnOnce(&Bench)) -> Result<[(u32, WcStatus); 5]> {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let heard = Recorder::new()?;
        let qp = bench.qp().ok_or(ENODEV)?;
        for who in &heard {
            add(&mut Qp::chain(&qp), Kind::Write, false, who)?;
        }
        drop(qp);
        end(&bench);
        bench.fake.wait_settled(1)?;
        bench.end(connection);
        Ok(heard.map(|who| *who.ends.lock()))
    }
}
