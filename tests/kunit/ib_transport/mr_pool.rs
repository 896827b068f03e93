// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of MRs that a device fails to register or invalidate. Others are of registrations
//! that wait for the device at the same time, and of MRs that wait until no READ response uses
//! them.

use kernel::prelude::*;

#[kunit_tests(rds_ib_regions)]
mod suite {
    use super::super::bench::*;
    use crate::{
        conn::Connection,
        ib_transport::{
            device::Device,
            mr::{
                pool::{
                    MrHandle,
                    MrPool,
                    MOST_PENDING, //
                },
                reg_qp::RegQp, //
            }, //
        },
        kapi::{
            pin::PinnedMemory,
            rdma::{
                fake::{
                    local_queue_pair,
                    program_has,
                    program_memory,
                    Script,
                    LOCAL_DEPTH,
                    LOCAL_PROTECTION, //
                },
                Access,
                WcStatus, //
            },
            sync::{
                new_spinlock_bh,
                SpinLockBh, //
            }, //
        },
        proto::rdma::Cookie,
        rdma_mem::{
            MrDevice,
            OnRelease,
            RemoteMemory, //
        }, //
    };
    use core::net::{
        IpAddr,
        Ipv4Addr,
        SocketAddr, //
    };
    use kernel::{
        page::PAGE_SIZE,
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        }, //
    };

    /// An address that no device has, so a failed registrar is not replaced.
    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 0);

    /// Returns a script by which the device refuses the work request after `after` others.
    fn refuse(after: u32) -> Script {
        Script {
            sends_before_error: after,
            send_error: ENOMEM.to_errno(),
            ..Script::default()
        }
    }

    /// Returns a script by which the work request after `after` others fails.
    fn fail(after: u32) -> Script {
        Script {
            local_before_status: after,
            local_status: LOCAL_PROTECTION.number(),
            ..Script::default()
        }
    }

    /// Returns a script by which no registration and no invalidation completes.
    fn hold() -> Script {
        Script {
            holds_local: true,
            ..Script::default()
        }
    }

    /// Pins a page of a program.
    fn pinned() -> Result<PinnedMemory> {
        let address = program_memory(PAGE_SIZE)?;
        // CAST: a page is small.
        PinnedMemory::pin(address, PAGE_SIZE as u32, true)
    }

    /// Sets a flag when memory is released.
    struct Then(Arc<Atomic<bool>>);

    impl OnRelease for Then {}

    impl Drop for Then {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// A registration by a worker.
    #[pin_data]
    struct Registering {
        #[pin]
        memory: SpinLockBh<Option<PinnedMemory>>,
        /// The result, once the registration has ended.
        #[pin]
        made: SpinLockBh<Option<Result<MrHandle<Cookie>>>>,
    }

    impl Registering {
        /// Takes the result. A registration that has not ended counts as busy.
        fn take(&self) -> Result<MrHandle<Cookie>> {
            let made = self.made.lock().take();
            made.unwrap_or(Err(EBUSY))
        }
    }

    /// A bench with a connection, and the MRs of its device.
    struct Memory {
        regions: Arc<MrPool>,
        device: Arc<Device>,
        connection: Arc<Connection>,
        bench: Bench,
    }

    impl Memory {
        /// Creates memory of a device that peers may access directly.
        fn new(setup: Setup) -> Result<Self> {
            Self::of(Setup {
                direct: true,
                ..setup
            })
        }

        fn of(setup: Setup) -> Result<Self> {
            let bench = Bench::new(setup)?;
            let connection = bench.connect()?;
            let qp = bench.qp().ok_or(ENODEV)?;
            let device = qp.handler().device.clone();
            let this = Self {
                regions: device.regions.clone(),
                device,
                connection,
                bench,
            };
            this.connect()?;
            Ok(this)
        }

        /// Gives the device queue pairs for registrations.
        fn connect(&self) -> Result {
            let pd = &self.device.pd;
            let reg_qp = RegQp::of(local_queue_pair(pd)?, local_queue_pair(pd)?)?;
            self.regions.set_registrar(reg_qp)
        }

        /// Registers a page.
        fn register(&self) -> Result<MrHandle<Cookie>> {
            let access = Access::Writable { atomics: false };
            self.regions.register(&HERE, pinned()?, access)
        }

        /// Makes a worker register a page.
        fn start(&self) -> Result<Arc<Registering>> {
            let memory = Some(pinned()?);
            let this = Arc::pin_init(
                pin_init!(Registering {
                    memory <- new_spinlock_bh!(memory, "Registering::memory"),
                    made <- new_spinlock_bh!(None, "Registering::made"),
                }),
                GFP_KERNEL,
            )?;
            let (job, regions) = (this.clone(), self.regions.clone());
            Job::start(&self.bench.queue, move || {
                let memory = job.memory.lock().take();
                let access = Access::Writable { atomics: false };
                let made = memory.map(|memory| regions.register(&HERE, memory, access));
                *job.made.lock() = made;
            })?;
            Ok(this)
        }

        /// Registers a page with atomics for peers.
        fn register_atomic(&self) -> Result<MrHandle<Cookie>> {
            let access = Access::Writable { atomics: true };
            self.regions.register(&HERE, pinned()?, access)
        }

        /// Returns the number of the device's MRs, and of all that were ever created.
        fn count(&self) -> (u32, u32) {
            self.bench.fake.regions()
        }

        /// Ends all. Returns how many MRs the device still has.
        fn end(self) -> u32 {
            let Self {
                regions,
                device,
                connection,
                mut bench,
            } = self;
            drop((regions, device, connection));
            bench.remove_device();
            bench.fake.regions().0
        }
    }

    #[test]
    fn a_device_that_refuses_atomic_operations_is_asked_once() -> Result {
        let memory = Memory::new(Setup::default())?;
        memory.bench.fake.set_script(Script {
            no_atomics: true,
            ..Script::default()
        });
        let regions = [(); 3].map(|()| memory.register_atomic().is_ok());
        let by_regions = memory.bench.fake.refused();
        memory.end();
        assert_eq!((regions, by_regions), ([true; 3], 1));
        Ok(())
    }

    #[test]
    fn a_region_that_is_given_back_is_used_again_with_another_key() -> Result {
        let memory = Memory::new(Setup::default())?;
        let first = memory.register()?;
        let key = first.cookie().rkey;
        drop(first);
        memory.regions.flush();
        let second = memory.register()?;
        let other = second.cookie().rkey;
        let count = memory.count();
        drop(second);
        let left = memory.end();
        assert_eq!((count, left), ((1, 1), 0));
        assert!(key != other);
        Ok(())
    }

    #[test]
    fn a_region_that_is_not_registered_goes() -> Result {
        for script in [refuse(0), fail(0)] {
            let memory = Memory::new(Setup::default())?;
            memory.bench.fake.set_script(script);
            let failed = memory.register().is_err();
            let (regions, _) = memory.count();
            // Failed queue pairs are not used again.
            let queues = memory.bench.fake.queues(2).is_some();
            memory.bench.fake.set_script(Script::default());
            memory.connect()?;
            let next = memory.register().is_ok();
            let left = memory.end();
            assert_eq!((failed, regions, queues), (true, 0, false));
            assert_eq!((next, left), (true, 0));
        }
        Ok(())
    }

    #[test]
    fn registrations_wait_for_the_device_at_the_same_time() -> Result {
        let memory = Memory::new(Setup::default())?;
        memory.bench.fake.set_script(hold());
        let two = [memory.start()?, memory.start()?];
        let both = memory.bench.await_sends(2, 2).is_ok();
        memory.bench.fake.set_script(Script::default());
        memory.bench.queue.flush();
        let made = two.map(|it| it.take().is_ok());
        let left = memory.end();
        assert_eq!((both, made, left), (true, [true; 2], 0));
        Ok(())
    }

    #[test]
    fn a_registration_does_not_wait_for_an_invalidation() -> Result {
        let memory = Memory::new(Setup::default())?;
        let first = memory.register()?;
        memory.bench.fake.set_script(hold());
        drop(first);
        // The registration and the invalidation.
        memory.bench.await_sends(2, 2)?;
        let second = memory.start()?;
        let both = memory.bench.await_sends(2, 3).is_ok();
        memory.bench.fake.set_script(Script::default());
        memory.bench.queue.flush();
        let made = second.take();
        let is_made = made.is_ok();
        drop(made);
        let left = memory.end();
        assert_eq!((both, is_made, left), (true, true, 0));
        Ok(())
    }

    /// The queue pair of the device has room for one more, which is for its end.
    #[test]
    fn registrations_wait_for_room_in_the_queue() -> Result {
        const MORE: u32 = 16;
        let memory = Memory::new(Setup::default())?;
        let pd = &memory.device.pd;
        let qp = local_queue_pair(pd)?;
        let reg_qp = RegQp::of(qp.clone(), local_queue_pair(pd)?)?;
        memory.regions.set_registrar(reg_qp)?;
        memory.bench.fake.set_script(hold());
        let mut all = KVec::new();
        for _ in 0..LOCAL_DEPTH + MORE {
            all.push(memory.start()?, GFP_KERNEL)?;
        }
        // CAST: the number is small.
        let waits = eventually(|| qp.waiting() == MORE as usize).is_ok();
        let posted = memory.bench.posted(4);
        memory.bench.fake.set_script(Script::default());
        memory.bench.queue.flush();
        let all_posted = memory.bench.posted(4);
        let all_made = all.iter().all(|it| it.take().is_ok());
        drop(qp);
        let left = memory.end();
        assert_eq!((waits, posted), (true, Some(LOCAL_DEPTH)));
        assert_eq!(all_posted, Some(LOCAL_DEPTH + MORE));
        assert_eq!((all_made, left), (true, 0));
        Ok(())
    }

    #[test]
    fn a_registration_that_fails_does_not_fail_others() -> Result {
        let memory = Memory::new(Setup::default())?;
        memory.bench.fake.set_script(hold());
        let two = [memory.start()?, memory.start()?];
        memory.bench.await_sends(2, 2)?;
        // The next attempts use these queue pairs.
        memory.connect()?;
        memory.bench.fake.set_script(fail(0));
        memory.bench.queue.flush();
        let before = memory.bench.fake.queues(2).is_some();
        let after = memory.bench.posted(4);
        let made = two.map(|it| it.take());
        let count = memory.count();
        let made = made.map(|it| it.is_ok());
        let left = memory.end();
        assert_eq!((made, count, left), ([true; 2], (2, 4), 0));
        assert_eq!((before, after), (false, Some(2)));
        Ok(())
    }

    /// Removal of the device has to find all queue pairs.
    #[test]
    fn a_queue_pair_is_replaced_only_after_its_end() -> Result {
        let memory = Memory::new(Setup::default())?;
        memory.bench.fake.set_script(Script {
            holds_flush: true,
            ..fail(0)
        });
        let first = memory.start()?;
        let failed = || {
            let queues = memory.bench.fake.queues(2);
            queues.is_some_and(|it| it.in_error)
        };
        memory.bench.fake.wait_until(failed)?;
        // The other registration waits until this one has drained the queue pair, which times out.
        let second = memory.register().is_ok();
        let ended = [2, 3].map(|number| memory.bench.fake.queues(number).is_none());
        memory.bench.fake.set_script(Script::default());
        memory.bench.queue.flush();
        let first = first.take().is_ok();
        let left = memory.end();
        assert_eq!((first, second), (false, false));
        assert_eq!((ended, left), ([true; 2], 0));
        Ok(())
    }

    /// Otherwise registrations, which run in parallel, could outrun the one task that invalidates.
    #[test]
    fn a_registration_invalidates_first_if_many_regions_wait() -> Result {
        let memory = Memory::new(Setup::default())?;
        let first = memory.register()?;
        let mut others = KVec::new();
        for _ in 0..MOST_PENDING {
            others.push(memory.register()?, GFP_KERNEL)?;
        }
        // CAST: the number is small.
        let registered = MOST_PENDING as u32 + 1;
        memory.bench.fake.set_script(hold());
        drop(first);
        memory.bench.await_sends(2, registered + 1)?;
        drop(others);
        let last = memory.start()?;
        // All invalidations succeed, and the next work request fails.
        memory.bench.fake.set_script(fail(registered));
        memory.regions.flush();
        memory.bench.queue.flush();
        let made = last.take().is_ok();
        memory.bench.fake.set_script(Script::default());
        let left = memory.end();
        assert_eq!((made, left), (false, 0));
        Ok(())
    }

    /// Otherwise the queue pairs would outlive the device, and its removal would never end.
    #[test]
    fn removal_of_the_device_ends_registrations() -> Result {
        let memory = Memory::new(Setup::default())?;
        memory.bench.fake.set_script(hold());
        let held = memory.start()?;
        memory.bench.await_sends(2, 1)?;
        let Memory {
            regions,
            device,
            connection,
            mut bench,
        } = memory;
        drop((regions, device, connection));
        bench.remove_device();
        let ended = [2, 3].map(|number| bench.fake.queues(number).is_none());
        bench.queue.flush();
        let error = held.take().err();
        let left = bench.fake.regions().0;
        assert_eq!((error, ended, left), (Some(ENODEV), [true; 2], 0));
        Ok(())
    }

    #[test]
    fn regions_that_are_not_invalidated_are_not_used_again() -> Result {
        // Either no MR is invalidated, or only the first one.
        for (script, good) in [(refuse(0), 0), (fail(0), 0), (refuse(1), 1), (fail(1), 1)] {
            let memory = Memory::new(Setup::default())?;
            let two = (memory.register()?, memory.register()?);
            memory.bench.fake.set_script(script);
            drop(two);
            memory.regions.flush();
            let count = memory.count();
            let queues = memory.bench.fake.queues(2).is_some();
            memory.connect()?;
            let again = (memory.register()?, memory.register()?);
            let more = memory.count();
            drop(again);
            let left = memory.end();
            assert_eq!((count, queues), ((good, 2), false));
            assert_eq!((more, left), ((2, 4 - good), 0));
        }
        Ok(())
    }

    #[test]
    fn a_region_that_the_device_does_not_end_is_kept_until_the_device_goes() -> Result {
        let memory = Memory::new(Setup::default())?;
        let held = memory.register()?;
        memory.bench.fake.set_script(Script {
            dereg_error: EIO.to_errno(),
            ..fail(0)
        });
        drop(held);
        memory.regions.flush();
        let kept = memory.device.pd.kept();
        let count = memory.count();
        memory.bench.fake.set_script(Script::default());
        let left = memory.end();
        assert_eq!((kept, count, left), (1, (1, 1), 0));
        Ok(())
    }

    #[test]
    fn memory_of_an_operation_is_released_when_its_region_is_invalid_and_not_before() -> Result {
        // If the MR cannot be invalidated, the memory is released when the MR is destroyed.
        for (ends, left) in [(Script::default(), 1), (fail(0), 0)] {
            let memory = Memory::new(Setup::default())?;
            let bench = &memory.bench;
            let released = Arc::new(Atomic::new(false), GFP_KERNEL)?;
            let then = Arc::new(Then(released.clone()), GFP_KERNEL)?;
            // The peer writes there, so the memory needs a key.
            let access = Access::Sink { by_peer: true };
            let map = |pinned| memory.regions.map(&HERE, pinned, access, then);
            let (held, pieces) = map(pinned()?)?;
            bench.fake.set_script(hold());
            drop((held, pieces));
            // The first of the two was the registration.
            bench.await_sends(2, 2)?;
            let early = released.load(Relaxed);
            bench.fake.set_script(ends);
            bench.queue.flush();
            let late = released.load(Relaxed);
            let (regions, _) = memory.count();
            let none = memory.end();
            assert_eq!((early, late), (false, true));
            assert_eq!((regions, none), (left, 0));
        }
        Ok(())
    }

    /// The memory begins within a page and has enough pieces for an MR. With bounce buffers it is
    /// not registered, because they begin at other offsets in their pages.
    #[test]
    fn an_operation_has_unaligned_memory_in_order() -> Result {
        const START: usize = 16;
        const LEN: usize = 16 * PAGE_SIZE;
        let memory = Memory::of(Setup::default())?;
        let address = program_memory(17 * PAGE_SIZE)? + START as u64;
        let pinned = PinnedMemory::pin(address, LEN as u32, true)?;
        let then = Arc::new(Then(Arc::new(Atomic::new(false), GFP_KERNEL)?), GFP_KERNEL)?;
        let access = Access::Sink { by_peer: false };
        let mapped = memory.regions.map(&HERE, pinned, access, then);
        let fake = &memory.bench.fake;
        let bounces = fake.bounces();
        let is_mapped = mapped.is_ok();
        let (mut total, mut in_order, mut is_written) = (0, true, false);
        if let Ok((held, pieces)) = mapped {
            let mut bytes = KVec::from_elem(0u8, LEN, GFP_KERNEL)?;
            for piece in &pieces {
                let here = bytes.get_mut(..piece.len() as usize).ok_or(EINVAL)?;
                if bounces {
                    fake.access(piece, here, false)?;
                    let expected = (START + total..).map(|at| (at / PAGE_SIZE) as u8);
                    in_order &= here.iter().zip(expected).all(|(a, b)| *a == b);
                    here.fill(0x77);
                    fake.access(piece, here, true)?;
                }
                total += piece.len() as usize;
            }
            let count = pieces.len();
            drop((held, pieces));
            memory.bench.queue.flush();
            memory.regions.flush();
            is_written = program_has(address, LEN, 0x77);
            let is_split = count > 4;
            assert_eq!(is_split, bounces);
        }
        let left = memory.end();
        assert_eq!((is_mapped, total, in_order), (true, LEN, true));
        assert_eq!((is_written, left), (bounces, 0));
        Ok(())
    }

    #[test]
    fn a_region_that_is_read_from_waits_until_something_later_is_sent() -> Result {
        let memory = given_back_while_read()?;
        let bench = &memory.bench;
        // The map and the message were posted before.
        bench.end_sends(1, MAP + 1, WcStatus::SUCCESS)?;
        bench.queue.flush();
        let early = memory.register()?;
        let (_, made_early) = memory.count();
        bench.end_sends(1, 1, WcStatus::SUCCESS)?;
        bench.queue.flush();
        let late = memory.register()?;
        let (_, made_late) = memory.count();
        drop((early, late));
        let left = memory.end();
        assert_eq!((made_early, made_late, left), (2, 2, 0));
        Ok(())
    }

    #[test]
    fn a_region_that_is_read_from_waits_for_no_queue_pair_that_is_gone() -> Result {
        let memory = given_back_while_read()?;
        let bench = &memory.bench;
        bench.reset(&memory.connection);
        // Queue pairs 2 and 3 are those of the registrar.
        bench.await_sends(4, MAP + 1)?;
        bench.queue.flush();
        let next = memory.register()?;
        let count = memory.count();
        drop(next);
        let left = memory.end();
        assert_eq!((count, left), ((1, 1), 0));
        Ok(())
    }

    /// Returns memory on soft-iWARP with an MR that was released. The queue pair of the connection
    /// has been asked to send something.
    fn given_back_while_read() -> Result<Memory> {
        let memory = Memory::new(Setup {
            soft_iwarp: true,
            ..Setup::default()
        })?;
        drop(memory.register()?);
        memory.bench.queue.flush();
        memory.bench.await_sends(1, MAP + 2)?;
        Ok(memory)
    }
}
