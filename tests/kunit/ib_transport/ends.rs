// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the end of queue pairs and of their device, and of what waits for them.

use kernel::prelude::*;

#[kunit_tests(rds_ib_ends)]
mod suite {
    use super::super::{
        bench::*,
        operations::{
            operation,
            Recorder, //
        }, //
    };
    use crate::{
        conn::{
            Connection,
            Transport, //
        },
        ib_transport::{
            endpoint_shared::EndpointShared,
            quirks::{
                DeferredBudget,
                DeferredCmId,
                DeferredDestroy, //
            }, //
        },
        kapi::{
            net::{
                Net,
                NetRef, //
            },
            rdma::{
                fake::{
                    FakeDevice,
                    Script,
                    FLUSHED,
                    REMOTE_ACCESS, //
                },
                CmEvent,
                CmHandler,
                CmId,
                DeviceId,
                IbDevice,
                Qp,
                Verb,
                WcStatus, //
            },
            sync::{
                count_holds,
                Completion, //
            }, //
        },
        proto::keepalive::time_for_operations,
        stats::Counter, //
    };
    use kernel::{
        prelude::*,
        sync::{
            aref::ARef,
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        }, //
    };

    #[test]
    fn nothing_goes_back_before_the_device_is_done_with_it() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let before = bench.buffers();
        bench.fake.set_script(Script {
            holds_flush: true,
            ..Script::default()
        });
        bench.reset(&connection);
        // The final send and receive are posted behind all others, and wait, too.
        bench.await_sends(1, MAP + 2)?;
        let during = bench.buffers();
        let queues = bench.fake.queues(1);
        bench.fake.set_script(Script::default());
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let late = bench.counted(Counter::IbNotFlushed);
        let left = bench.end(connection);
        assert!(before > RECEIVES as usize);
        assert_eq!(during, before);
        let held = queues.map(|it| (it.in_error, it.sends_ended, it.receives_ended));
        assert_eq!(held, Some((true, 0, 0)));
        assert_eq!((late, left), (0, 0));
        Ok(())
    }

    /// Longer than any wait of a test.
    const LONG_MS: u32 = 60_000;

    /// A bench with a connection, an operation of which is posted. The device reports it within
    /// this time after a disconnect, or not at all.
    fn bench_with_operation(
        answer_timeout_ms: u32,
    ) -> Result<(Bench, Arc<Connection>, Arc<Recorder>)> {
        let bench = Bench::new(Setup {
            answer_timeout_ms,
            ..Setup::default()
        })?;
        let connection = bench.connect()?;
        let [who, ..] = Recorder::new()?;
        let qp = bench.qp().ok_or(ENODEV)?;
        let posted = Qp::chain(&qp).operate(operation(&qp, Verb::Write, &who)?);
        posted.map_err(|_| EIO)?;
        Ok((bench, connection, who))
    }

    fn disconnect(bench: &Bench) -> Result {
        let qp = bench.qp().ok_or(ENODEV)?;
        qp.handler().shared.event(CmEvent::Disconnected);
        Ok(())
    }

    /// Disconnects, and waits until the worker waits for the answer.
    fn disconnect_early(bench: &Bench) -> Result {
        let qp = bench.qp().ok_or(ENODEV)?;
        disconnect(bench)?;
        eventually(|| qp.is_awaited())
    }

    /// A peer that refuses an operation ends the connection. Such an end is no failure of the peer.
    #[test]
    fn a_refusal_that_is_handled_after_the_disconnect_counts() -> Result {
        let (bench, connection, who) = bench_with_operation(LONG_MS)?;
        disconnect_early(&bench)?;
        bench.fake.end_sends(1, MAP + 1, WcStatus::SUCCESS);
        bench.fake.end_sends(1, 1, REMOTE_ACCESS);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let counted =
            [Counter::ConnReset, Counter::ConnOpRefused].map(|counter| bench.counted(counter));
        let left = bench.end(connection);
        assert_eq!((*who.ends.lock(), left), ((1, REMOTE_ACCESS), 0));
        assert_eq!(counted, [1, 1]);
        Ok(())
    }

    /// Otherwise an operation of another program would be posted, and end as dropped.
    #[test]
    fn nothing_is_posted_while_an_answer_is_awaited() -> Result {
        let (bench, connection, _who) = bench_with_operation(LONG_MS)?;
        disconnect_early(&bench)?;
        let before = bench.posted(1);
        bench.send(&connection, 3)?;
        let after = bench.posted(1);
        bench.fake.end_sends(1, MAP + 2, WcStatus::SUCCESS);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 4)?;
        let left = bench.end(connection);
        assert_eq!((before, left), (after, 0));
        assert_eq!(before, Some(MAP + 2));
        Ok(())
    }

    #[test]
    fn a_success_ends_the_wait_for_answers_too() -> Result {
        let (bench, connection, who) = bench_with_operation(LONG_MS)?;
        disconnect_early(&bench)?;
        bench.fake.end_sends(1, MAP + 2, WcStatus::SUCCESS);
        bench.await_end(1)?;
        let refused = bench.counted(Counter::ConnOpRefused);
        let left = bench.end(connection);
        assert_eq!((*who.ends.lock(), left), ((1, WcStatus::SUCCESS), 0));
        assert_eq!(refused, 0);
        Ok(())
    }

    #[test]
    fn a_device_without_an_answer_delays_the_end_for_a_limited_time() -> Result {
        let (bench, connection, who) = bench_with_operation(1)?;
        disconnect(&bench)?;
        bench.await_end(1)?;
        let left = bench.end(connection);
        assert_eq!((*who.ends.lock(), left), ((1, FLUSHED), 0));
        Ok(())
    }

    #[test]
    fn nothing_waits_for_answers_that_cannot_come() -> Result {
        // The peer has not disconnected.
        let (bench, connection, who) = bench_with_operation(LONG_MS)?;
        bench.reset(&connection);
        bench.await_end(1)?;
        let left = bench.end(connection);
        assert_eq!((*who.ends.lock(), left), ((1, FLUSHED), 0));
        // No operation is posted.
        let bench = Bench::new(Setup {
            answer_timeout_ms: LONG_MS,
            ..Setup::default()
        })?;
        let connection = bench.connect()?;
        disconnect(&bench)?;
        bench.await_end(1)?;
        assert_eq!(bench.end(connection), 0);
        Ok(())
    }

    #[test]
    fn an_event_that_a_queue_pair_is_dead_ends_its_connection() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.fake.report_fatal(1);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((resets, left), (1, 0));
        Ok(())
    }

    #[test]
    fn an_event_that_a_completion_queue_is_dead_ends_its_connection() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let heard = bench.fake.report_overrun(1);
        if heard {
            bench.await_end(1)?;
            bench.await_sends(2, MAP + 1)?;
        }
        let resets = bench.counted(Counter::ConnReset);
        let left = bench.end(connection);
        assert_eq!((heard, resets, left), (true, 1, 0));
        Ok(())
    }

    #[test]
    fn no_driver_decides_how_long_the_end_may_take() -> Result {
        let bench = Bench::new(Setup {
            own_drain: true,
            ..Setup::default()
        })?;
        let connection = bench.connect()?;
        bench.reset(&connection);
        bench.await_end(1)?;
        bench.await_sends(2, MAP + 1)?;
        let (drained, late) = (bench.fake.drained(), bench.counted(Counter::IbNotFlushed));
        let left = bench.end(connection);
        assert_eq!((drained, late, left), (0, 0, 0));
        Ok(())
    }

    #[test]
    fn a_completion_without_a_request_is_not_followed() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        let reported = bench.fake.report_stray(1);
        bench.fake.wait_settled(1)?;
        let believed = bench.fake.strays();
        let left = bench.end(connection);
        assert_eq!((reported, believed, left), (true, 0, 0));
        Ok(())
    }

    #[test]
    fn no_worker_waits_for_io_that_may_wait_for_it() -> Result {
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.reset(&connection);
        bench.await_sends(2, MAP + 1)?;
        let with_io = bench.fake.made_with_io();
        let left = bench.end(connection);
        assert_eq!((with_io, left), (0, 0));
        Ok(())
    }

    #[test]
    fn a_type_of_service_is_a_service_level_where_there_is_a_subnet_manager() -> Result {
        let fake = FakeDevice::new(false, false)?;
        assert_eq!(fake.service_level(false, true), 1105);
        // On RoCE the service level stays as the network's administrator has set it.
        assert_eq!(fake.service_level(true, true), 102);
        // An unresolved id has neither a device nor a route, so neither is accessed.
        assert_eq!(fake.service_level(false, false), 2);
        Ok(())
    }

    #[test]
    fn a_device_goes_while_it_has_sends() -> Result {
        let mut bench = Bench::new(Setup::default())?;
        let connection = bench.connect()?;
        bench.remove_device();
        let queues = bench.fake.queues(1).is_some();
        let last = bench.fake.last_qp();
        let resets = bench.counted(Counter::ConnReset);
        bench.end(connection);
        assert_eq!((queues, last, resets), (false, 1, 1));
        Ok(())
    }

    /// Otherwise the shares of several users together exceed the real size of a pool, and sends
    /// fail where they should wait.
    #[test]
    fn shares_follow_from_the_bounce_buffers_of_a_device() -> Result {
        for direct in [false, true] {
            let mut bench = Bench::new(Setup {
                direct,
                ..Setup::default()
            })?;
            let ib = bench.wire.ib.clone();
            let with_device = ib.pool_limit();
            let bounds = bench.fake.device().bounce_bounds();
            let bounces = bench.fake.bounces();
            bench.remove_device();
            assert_eq!(bounds.is_some(), bounces);
            let expected = bounds.map_or(POOL_LIMIT, |it| it.arena().min(POOL_LIMIT));
            assert_eq!((with_device, ib.pool_limit()), (expected, POOL_LIMIT));
        }
        Ok(())
    }

    #[test]
    fn the_number_of_deferred_cm_ids_is_limited() -> Result {
        const MOST: usize = 1024;
        const ID: DeviceId = DeviceId(7);
        let bench = Bench::new(Setup::default())?;
        let connection = bench.connection()?;
        let ib = &bench.wire.ib;
        let shared = EndpointShared::new(&connection, ib.fragment, None)?;
        let id = CmId::new(&NetRef::init()?, shared)?;
        let parking = DeferredDestroy::new()?;
        let container = Net::other(1);
        let init = DeferredBudget::new(Net::init())?;
        let first = DeferredBudget::new(container)?;
        let second = DeferredBudget::new(Net::other(2))?;
        let refused = |budget: &DeferredBudget| {
            let parked = DeferredCmId::connection(ID, budget, id.clone());
            parked.map(|parked| parking.park(parked)).is_err()
        };
        // A namespace does not use up what others have, and the initial one has most.
        let of_first = (0..MOST).take_while(|_| !refused(&first)).count();
        let early = (0..MOST).filter(|_| refused(&init)).count();
        let last = refused(&init);
        // None of them can go, because the address is not resolved. Few are checked in one hold of
        // the lock, because each check may search all network devices.
        let (remain, holds) = count_holds(&*parking, || {
            [ID, DeviceId(8)].map(|device| parking.sweep(device))
        });
        parking.clear(DeviceId(8));
        let others = [&init, &second].map(refused);
        parking.clear_net(container);
        let used = [&init, &first].map(DeferredBudget::is_used);
        let of_init = refused(&init);
        parking.clear(ID);
        let again = [&init, &first].map(refused);
        parking.clear(ID);
        drop((parking, id));
        bench.end(connection);
        assert_eq!(remain, [true, false]);
        assert!(holds >= 2 * MOST / 16);
        assert_eq!((of_first, early, last, of_init), (128, 0, true, true));
        assert_eq!(
            (others, used, again),
            ([true, false], [true, false], [false; 2])
        );
        Ok(())
    }

    #[test]
    fn removing_a_device_does_not_wait_for_tasks_without_its_pools() -> Result {
        let mut bench = Bench::new(Setup::default())?;
        let gate = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let late = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        for queue in [&bench.queue, &bench.workers] {
            let (gate, late) = (gate.clone(), late.clone());
            Job::start(queue, move || {
                late.fetch_add(gate.wait(60_000).is_err().into(), Relaxed);
            })?;
        }
        bench.remove_device();
        let late = late.load(Relaxed);
        for _ in 0..2 {
            gate.signal();
        }
        bench.workers.flush();
        bench.queue.flush();
        assert_eq!(late, 0);
        Ok(())
    }

    #[test]
    fn removing_a_device_waits_for_holders() -> Result {
        let mut bench = Bench::new(Setup::default())?;
        let begun = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let ended = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        for known in [true, false] {
            let (heard, begun, ended) = (begun.clone(), begun.clone(), ended.clone());
            let ib = bench.wire.ib.clone();
            let device: ARef<IbDevice> = bench.fake.device().into();
            let nobody = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
            Job::start(&bench.workers, move || {
                let hold = known.then(|| ib.hold(&device));
                let section = (!known).then(|| ib.section().ok());
                begun.signal();
                let goes = || match known {
                    true => ib.hold(&device).is_none(),
                    false => ib.pools_of(&device).is_none(),
                };
                while !goes() {
                    let _ = nobody.wait(1);
                }
                // Long enough for the removal to finish, if it did not wait.
                let _ = nobody.wait(100);
                ended.fetch_add(1, Relaxed);
                drop((hold, section));
            })?;
            heard.wait(60_000)?;
        }
        bench.remove_device();
        let ended = ended.load(Relaxed);
        bench.workers.flush();
        assert_eq!(ended, 2);
        Ok(())
    }

    /// Only a connection that is needed but missing is shown without a path.
    #[test]
    fn a_connection_that_loses_its_device_while_nothing_waits_rests() -> Result {
        const CONNECTED: u8 = 0x04;
        const RESTING: u8 = 0x80;
        let mut seen = KVec::new();
        for answered in [true, false] {
            let mut bench = Bench::new(Setup::default())?;
            let connection = bench.connect()?;
            if answered {
                let first = bench.header(1, MAP).ok_or(ENOENT)?;
                bench.hear(1, first.sequence, 0)?;
            }
            let up = connection.path.rdma_path().is_some();
            bench.remove_device();
            let (info, path) = (connection.path.info(), connection.path.rdma_path());
            seen.push((up, info.flags & RESTING, path.is_some()), GFP_KERNEL)?;
            if answered {
                assert_eq!(info.flags, CONNECTED | RESTING);
            }
            drop(connection);
        }
        assert_eq!(seen[..], [(true, RESTING, true), (true, 0, false)]);
        Ok(())
    }

    /// A peer that is silent for longer than its operations may take counts as dead.
    #[test]
    fn the_time_for_operations_follows_from_the_rate_of_the_port() -> Result {
        let bench = Bench::new(Setup::default())?;
        let time = || {
            bench
                .qp()
                .map(|qp| qp.handler().device.time_for_operations())
        };
        let connection = bench.connect()?;
        let unknown = time();
        bench.fake.add_port();
        let mbits = bench.fake.device().port_mbits();
        let old = time();
        bench.reset(&connection);
        bench.await_sends(2, MAP + 1)?;
        let known = time();
        bench.end(connection);
        let expected = [0, 0, mbits].map(|mbits| Some(time_for_operations(mbits, 1)));
        assert_eq!(mbits, 100_000);
        assert_eq!([unknown, old, known], expected);
        assert!(known < unknown);
        Ok(())
    }
}
